from kikuchi.graphs.generators import complete as complete
from kikuchi.graphs.generators import grid as grid
from kikuchi.graphs.generators import ldpc as ldpc
from kikuchi.graphs.generators import random_graph as random_graph
from kikuchi.graphs.generators import random_regular as random_regular
from kikuchi.graphs.generators import random_tables as random_tables
from kikuchi.graphs.generators import random_tree as random_tree
