from kikuchi.graphs.regions.builders import region_graph as region_graph
from kikuchi.graphs.regions.region_graph import RegionGraph as RegionGraph
