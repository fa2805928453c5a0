"""What a task's layouts cost: seconds an iteration and bytes a device, before it runs and after.

`accelerators` has the devices, `model` the models, `training` how they are trained and laid out,
`memory` and `steptime` the two answers, `layouts` the best of them for every number of devices,
`measured` what replaces them once steps were timed. `published` and `fit` hold the model to what
others measured. `guess` is the shorter model that the control plane's plans begin with.

Tables are read when they are first asked for; importing this reads nothing.
"""

from unicron.planner.cost.accelerators import Accelerator, accelerator, accelerator_table
from unicron.planner.cost.guess import (
    GPTShape,
    model_flops_per_microbatch,
    options_for,
    parameters,
    step_seconds,
)
from unicron.planner.cost.layouts import (
    Choice,
    Choices,
    best_layout,
    layout_table,
    options,
    pareto,
)
from unicron.planner.cost.measured import (
    Estimate,
    Sample,
    Series,
    Summary,
    estimate,
    estimates,
    overwritten,
    record,
    summary,
)
from unicron.planner.cost.memory import Memory, memory_needed
from unicron.planner.cost.model import Transformer, flops_per_sample, parameter_count
from unicron.planner.cost.steptime import StepTime, step_time
from unicron.planner.cost.training import Execution, Training

__all__ = [
    "Accelerator",
    "Choice",
    "Choices",
    "Estimate",
    "Execution",
    "GPTShape",
    "Memory",
    "Sample",
    "Series",
    "StepTime",
    "Summary",
    "Training",
    "Transformer",
    "accelerator",
    "accelerator_table",
    "best_layout",
    "estimate",
    "estimates",
    "flops_per_sample",
    "layout_table",
    "memory_needed",
    "model_flops_per_microbatch",
    "options",
    "options_for",
    "overwritten",
    "parameter_count",
    "parameters",
    "pareto",
    "record",
    "step_seconds",
    "step_time",
    "summary",
]
