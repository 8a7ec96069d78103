from kikuchi.brackets.auto import Auto as Auto
from kikuchi.brackets.log_z_bounds import LogZBounds as LogZBounds
from kikuchi.engines.certificates import Certificate as Certificate
from kikuchi.engines.certificates import certify as certify
