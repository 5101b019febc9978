"""Optimisers: SGD, Adam and their relatives, rates that change, gradients kept within bounds.

optimizer = optim.Adam(net.parameters(), lr=1e-3)

loss = net(x).cross_entropy(labels)
loss.backward()
optimizer.step(loss)  # computes the step and the loss in one go
optimizer.zero_grad()  # in a recorded step: or the gradients are kept, and so computed apart

Read `optimizer.py` first, then `methods.py`; `schedules.py` changes rates, `clip.py` gradients.
"""

from frontend.optim.clip import clip_grad_norm, clip_grad_value
from frontend.optim.methods import SGD, Adagrad, Adam, AdamW, Lamb, RMSprop
from frontend.optim.optimizer import Group, Optimizer
from frontend.optim.schedules import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    ReduceLROnPlateau,
    Schedule,
    StepLR,
    WarmupCosine,
)

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "CosineAnnealingLR",
    "ExponentialLR",
    "Group",
    "Lamb",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "Optimizer",
    "RMSprop",
    "ReduceLROnPlateau",
    "Schedule",
    "StepLR",
    "WarmupCosine",
    "clip_grad_norm",
    "clip_grad_value",
]
