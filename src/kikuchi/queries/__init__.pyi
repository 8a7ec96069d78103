from kikuchi.queries.answers import JointDistribution as JointDistribution
from kikuchi.queries.dynamic import TwoSliceNetwork as TwoSliceNetwork
