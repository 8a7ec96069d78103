"""What Liu's thesis publishes in tables 4.1 to 4.5, and the catalogue's own values beside them.

Numbers only, as printed, with the lines of the text they stand in (LIU-E6 to LIU-E10). A row holds
mean and deviation over 20 random models of the l1 error, the correlation and the error of log Z.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Errors(NamedTuple):
    """l1 error, correlation and log Z error: means, then deviations where they are known."""

    l1: float
    rho: float | None
    log_z: float | None
    l1_std: float | None = None
    rho_std: float | None = None
    log_z_std: float | None = None

    @property
    def text(self) -> str:
        """The three means as one text."""
        parts = [f"{self.l1:.3g}"]
        parts.append("–" if self.rho is None else f"{self.rho:.3f}")
        parts.append("–" if self.log_z is None else f"{self.log_z:.3g}")
        return " / ".join(parts)


Column = Mapping[float, Errors]
"""By number of variables (grids) or deviation of the fields (complete graphs)."""

LINES = {
    "LIU-E6": "Table 4.1, lines 1042 to 1056",
    "LIU-E7": "Table 4.2, lines 1058 to 1072",
    "LIU-E8": "Table 4.3, lines 1074 to 1082",
    "LIU-E9": "Table 4.4, lines 1094 to 1111",
    "LIU-E10": "Table 4.5, lines 1113 to 1130",
}

COLUMNS = ("mean field", "loopy BP", "damped BP", "GBP", "Inference Net", "RENN")
NEURAL = ("Inference Net", "RENN")

_TABLES: dict[str, dict[float, list[Errors]]] = {
    "LIU-E6": {
        25: [
            Errors(0.271, 0.633, 2.512, 0.051, 0.197, 1.06),
            Errors(0.086, 0.903, 0.549, 0.078, 0.114, 0.373),
            Errors(0.084, 0.905, 0.557, 0.076, 0.113, 0.369),
            Errors(0.057, 0.923, 0.169, 0.024, 0.045, 0.142),
            Errors(0.111, 0.866, 0.762, 0.072, 0.117, 0.439),
            Errors(0.049, 0.951, 0.24, 0.078, 0.112, 0.14),
        ],
        100: [
            Errors(0.283, 0.582, 13.09, 0.024, 0.112, 2.156),
            Errors(0.085, 0.827, 1.65, 0.041, 0.134, 1.414),
            Errors(0.062, 0.902, 1.457, 0.024, 0.059, 1.365),
            Errors(0.064, 0.899, 0.524, 0.019, 0.043, 0.313),
            Errors(0.074, 0.903, 2.836, 0.034, 0.049, 2.158),
            Errors(0.025, 0.983, 1.899, 0.011, 0.012, 0.495),
        ],
        225: [
            Errors(0.284, 0.58, 29.93, 0.019, 0.08, 4.679),
            Errors(0.1, 0.801, 3.348, 0.025, 0.078, 1.954),
            Errors(0.076, 0.863, 3.423, 0.025, 0.088, 2.157),
            Errors(0.073, 0.869, 1.008, 0.013, 0.037, 0.653),
            Errors(0.073, 0.873, 3.249, 0.012, 0.037, 2.058),
            Errors(0.046, 0.949, 4.344, 0.011, 0.022, 0.813),
        ],
        400: [
            Errors(0.279, 0.596, 51.81, 0.014, 0.054, 4.706),
            Errors(0.11, 0.779, 5.738, 0.016, 0.059, 2.107),
            Errors(0.09, 0.822, 5.873, 0.016, 0.047, 2.211),
            Errors(0.079, 0.852, 1.75, 0.009, 0.024, 0.869),
            Errors(0.083, 0.841, 3.953, 0.009, 0.028, 2.558),
            Errors(0.061, 0.912, 7.598, 0.009, 0.025, 1.146),
        ],
    },
    "LIU-E7": {
        25: [
            Errors(0.131, 0.849, 2.113, 0.08, 0.159, 1.367),
            Errors(0.022, 0.992, 0.17, 0.017, 0.011, 0.199),
            Errors(0.022, 0.991, 0.194, 0.018, 0.012, 0.188),
            Errors(0.137, 0.798, 0.605, 0.026, 0.088, 0.611),
            Errors(0.043, 0.98, 2.214, 0.017, 0.015, 0.775),
            Errors(0.027, 0.988, 0.649, 0.014, 0.025, 0.363),
        ],
        100: [
            Errors(0.13, 0.841, 8.034, 0.041, 0.087, 2.523),
            Errors(0.025, 0.988, 0.372, 0.014, 0.013, 0.427),
            Errors(0.025, 0.988, 0.415, 0.014, 0.012, 0.422),
            Errors(0.146, 0.788, 1.545, 0.02, 0.051, 1.081),
            Errors(0.046, 0.976, 11.14, 0.009, 0.013, 0.954),
            Errors(0.017, 0.997, 3.129, 0.002, 0.001, 0.52),
        ],
        225: [
            Errors(0.135, 0.824, 17.923, 0.024, 0.057, 3.474),
            Errors(0.024, 0.989, 0.952, 0.01, 0.01, 1.037),
            Errors(0.023, 0.99, 0.917, 0.009, 0.01, 0.922),
            Errors(0.154, 0.764, 3.143, 0.012, 0.022, 2.122),
            Errors(0.052, 0.966, 25.55, 0.01, 0.016, 2.025),
            Errors(0.017, 0.996, 7.473, 0.003, 0.001, 0.906),
        ],
        400: [
            Errors(0.131, 0.828, 31.74, 0.02, 0.043, 4.766),
            Errors(0.02, 0.993, 0.919, 0.003, 0.002, 0.684),
            Errors(0.02, 0.993, 1.011, 0.003, 0.002, 0.685),
            Errors(0.158, 0.759, 3.313, 0.007, 0.018, 1.872),
            Errors(0.052, 0.967, 46.61, 0.007, 0.013, 3.094),
            Errors(0.017, 0.997, 12.77, 0.001, 0.001, 0.991),
        ],
    },
    "LIU-E8": {
        0.1: [
            Errors(0.061, 0.913, 3.564, 0.025, 0.049, 2.823),
            Errors(0.025, 0.984, 0.384, 0.02, 0.021, 0.223),
        ],
        1: [
            Errors(0.145, 0.783, 0.825, 0.028, 0.091, 0.841),
            Errors(0.016, 0.995, 0.364, 0.01, 0.01, 0.201),
        ],
    },
    "LIU-E9": {
        0.1: [
            Errors(0.294, 0.262, 8.402, 0.061, 0.177, 4.369),
            Errors(0.12, 0.695, 34.61, 0.038, 0.104, 2.439),
            Errors(0.118, 0.698, 34.74, 0.034, 0.099, 2.195),
            Errors(0.237, 0.446, 1.763, 0.061, 0.196, 1.176),
            Errors(0.109, 0.72, 35.46, 0.025, 0.065, 1.651),
            Errors(0.13, 0.741, 3.171, 0.085, 0.22, 1.259),
        ],
        1: [
            Errors(0.233, 0.465, 6.473, 0.133, 0.349, 3.737),
            Errors(0.2, 0.538, 45.91, 0.098, 0.292, 6.888),
            Errors(0.201, 0.538, 45.96, 0.098, 0.292, 6.927),
            Errors(0.246, 0.461, 1.826, 0.135, 0.331, 2.024),
            Errors(0.196, 0.639, 51.87, 0.061, 0.159, 6.15),
            Errors(0.137, 0.769, 2.796, 0.117, 0.313, 1.194),
        ],
        2: [
            Errors(0.187, 0.587, 5.83, 0.131, 0.3, 2.979),
            Errors(0.176, 0.619, 75.35, 0.114, 0.284, 14.58),
            Errors(0.177, 0.619, 75.46, 0.113, 0.282, 14.57),
            Errors(0.247, 0.457, 3.08, 0.117, 0.257, 2.958),
            Errors(0.182, 0.645, 81.23, 0.084, 0.175, 12.939),
            Errors(0.067, 0.929, 2.577, 0.045, 0.118, 1.845),
        ],
        3: [
            Errors(0.155, 0.657, 4.401, 0.12, 0.289, 2.522),
            Errors(0.145, 0.697, 111.0, 0.112, 0.267, 22.2),
            Errors(0.146, 0.697, 111.1, 0.112, 0.265, 22.17),
            Errors(0.204, 0.582, 3.205, 0.107, 0.218, 3.72),
            Errors(0.152, 0.697, 116.1, 0.079, 0.162, 19.76),
            Errors(0.06, 0.936, 2.645, 0.038, 0.076, 1.507),
        ],
        4: [
            Errors(0.124, 0.758, 3.037, 0.115, 0.257, 2.122),
            Errors(0.12, 0.778, 142.9, 0.103, 0.221, 25.58),
            Errors(0.121, 0.776, 143.1, 0.102, 0.221, 25.56),
            Errors(0.194, 0.597, 5.167, 0.076, 0.177, 5.249),
            Errors(0.129, 0.753, 147.2, 0.071, 0.178, 23.38),
            Errors(0.051, 0.941, 1.82, 0.05, 0.099, 1.306),
        ],
    },
    "LIU-E10": {
        0.1: [
            Errors(0.303, 0.231, 24.45, 0.056, 0.196, 7.56),
            Errors(0.176, 0.509, 143.7, 0.039, 0.056, 9.297),
            Errors(0.174, 0.51, 145.5, 0.038, 0.055, 6.096),
            Errors(0.244, 0.316, 166.3, 0.047, 0.207, 11.98),
            Errors(0.174, 0.506, 148.5, 0.044, 0.063, 3.522),
            Errors(0.169, 0.539, 12.57, 0.052, 0.235, 3.689),
        ],
        1: [
            Errors(0.273, 0.381, 20.66, 0.086, 0.255, 5.451),
            Errors(0.239, 0.514, 178.7, 0.059, 0.185, 22.18),
            Errors(0.239, 0.515, 178.9, 0.059, 0.185, 21.88),
            Errors(0.26, 0.445, 153.3, 0.086, 0.223, 25.29),
            Errors(0.249, 0.533, 213.6, 0.067, 0.15, 12.75),
            Errors(0.181, 0.756, 14.41, 0.092, 0.187, 4.135),
        ],
        2: [
            Errors(0.231, 0.535, 16.04, 0.079, 0.207, 4.352),
            Errors(0.222, 0.569, 296.3, 0.064, 0.18, 44.41),
            Errors(0.221, 0.57, 296.9, 0.064, 0.179, 44.24),
            Errors(0.249, 0.48, 116.9, 0.078, 0.186, 32.72),
            Errors(0.232, 0.559, 335.1, 0.069, 0.176, 32.86),
            Errors(0.17, 0.75, 13.37, 0.109, 0.261, 4.531),
        ],
        3: [
            Errors(0.218, 0.586, 13.87, 0.042, 0.142, 6.554),
            Errors(0.204, 0.618, 432.7, 0.038, 0.134, 66.44),
            Errors(0.204, 0.619, 433.4, 0.038, 0.134, 66.3),
            Errors(0.247, 0.502, 100.2, 0.065, 0.144, 39.62),
            Errors(0.213, 0.613, 462.9, 0.051, 0.128, 53.61),
            Errors(0.138, 0.853, 12.56, 0.106, 0.159, 6.046),
        ],
        4: [
            Errors(0.197, 0.622, 10.74, 0.049, 0.166, 7.385),
            Errors(0.181, 0.658, 565.7, 0.035, 0.133, 73.33),
            Errors(0.18, 0.66, 566.1, 0.034, 0.132, 73.13),
            Errors(0.21, 0.564, 106.0, 0.07, 0.165, 54.43),
            Errors(0.174, 0.693, 588.3, 0.03, 0.06, 62.58),
            Errors(0.125, 0.868, 14.72, 0.05, 0.053, 4.155),
        ],
    },
}


# The catalogue's independent values (appendix D), on models of its own; "region energy" is the
# region free energy minimised over free tables with penalties, without a network.
_CORRECTED: dict[str, dict[str, Column]] = {
    "LIU-E6": {
        "mean field": {25: Errors(0.269, 0.64, 3.17)},
        "loopy BP": {25: Errors(0.050, 0.93, 0.49), 100: Errors(0.096, 0.83, 1.27)},
        "damped BP": {25: Errors(0.044, 0.95, 0.48), 100: Errors(0.071, 0.92, 1.27)},
        "GBP": {25: Errors(0.195, 0.55, 0.63)},
        "region energy": {25: Errors(0.0028, 0.999, 0.036), 100: Errors(0.0048, 1.0, 0.23)},
    },
    "LIU-E7": {
        "mean field": {25: Errors(0.121, 0.85, 1.99)},
        "loopy BP": {25: Errors(0.023, 0.98, 0.17), 100: Errors(0.029, 0.985, 0.48)},
        "damped BP": {25: Errors(0.020, 0.99, 0.19), 100: Errors(0.026, 0.988, 0.50)},
        "GBP": {25: Errors(0.102, 0.81, 0.42)},
        "region energy": {25: Errors(0.0102, 0.999, 0.57), 100: Errors(0.0015, 1.0, 0.37)},
    },
    "LIU-E8": {},
    "LIU-E9": {
        "mean field": {
            0.1: Errors(0.289, None, 1.06),
            1: Errors(0.197, None, 1.18),
            2: Errors(0.151, None, 1.00),
            3: Errors(0.106, None, 0.98),
            4: Errors(0.049, None, 0.40),
        },
        "loopy BP": {
            0.1: Errors(0.264, None, 1.69),
            1: Errors(0.170, None, 0.75),
            2: Errors(0.082, None, 0.79),
            3: Errors(0.054, None, 0.87),
            4: Errors(0.021, None, 0.10),
        },
        "damped BP": {
            0.1: Errors(0.247, None, 2.00),
            1: Errors(0.177, None, 1.75),
            2: Errors(0.073, None, 0.39),
            3: Errors(0.040, None, 0.32),
            4: Errors(0.021, None, 0.10),
        },
        "GBP": {
            0.1: Errors(0.231, None, 0.86),
            1: Errors(0.150, None, 0.50),
            2: Errors(0.137, None, 0.91),
            3: Errors(0.046, None, 0.46),
            4: Errors(0.058, None, 0.93),
        },
        "region energy": {
            0.1: Errors(0.057, None, 1.05),
            1: Errors(0.053, None, 0.87),
            2: Errors(0.036, None, 0.70),
            3: Errors(0.026, None, 0.65),
            4: Errors(0.019, None, 0.58),
        },
    },
    "LIU-E10": {
        "mean field": {
            0.1: Errors(0.286, None, 1.66),
            1: Errors(0.142, None, 1.53),
            2: Errors(0.100, None, 1.37),
            3: Errors(0.066, None, 1.17),
            4: Errors(0.110, None, 2.36),
        },
        "loopy BP": {
            0.1: Errors(0.258, None, 2.71),
            1: Errors(0.115, None, 2.19),
            2: Errors(0.138, None, 1.89),
            3: Errors(0.105, None, 2.81),
            4: Errors(0.052, None, 1.31),
        },
        "damped BP": {
            0.1: Errors(0.240, None, 4.63),
            1: Errors(0.077, None, 2.49),
            2: Errors(0.081, None, 1.79),
            3: Errors(0.073, None, 3.24),
            4: Errors(0.066, None, 2.01),
        },
    },
}


def published(experiment: str) -> dict[str, Column]:
    """The published table by column.

    >>> published("LIU-E6")["RENN"][400].text
    '0.061 / 0.912 / 7.6'
    """
    table = _TABLES[experiment]
    names = ("GBP", "RENN") if experiment == "LIU-E8" else COLUMNS
    return {name: {x: row[k] for x, row in table.items()} for k, name in enumerate(names)}


def corrected(experiment: str) -> Mapping[str, Column]:
    """The catalogue's values by column; not every column and row has one."""
    return _CORRECTED[experiment]
