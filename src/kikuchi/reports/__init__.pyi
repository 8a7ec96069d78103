from kikuchi.reports.compare_page import compare_report as compare_report
from kikuchi.reports.comparison import Comparison as Comparison
from kikuchi.reports.comparison import compare as compare
from kikuchi.reports.facts import ModelFacts as ModelFacts
from kikuchi.reports.facts import describe as describe
from kikuchi.reports.infer_page import infer_report as infer_report
from kikuchi.reports.learn_page import learn_report as learn_report
