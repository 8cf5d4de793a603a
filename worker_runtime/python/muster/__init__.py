"""The muster worker runtime for Python: who am I, move data with the other ranks, average gradients.

A thin layer over libmuster.so (the C API); no build step, and nothing but the standard library. Arrays are whatever has
the buffer protocol (array.array, bytearray, ctypes, numpy) or is a torch tensor on the CPU; neither numpy nor torch is
imported. PYTHON.md has examples.
"""

from muster.communicator import Communicator, Context, Place, Work
from muster.library import MusterError
from muster.reducer import GradientReducer, ScalingReport, StepCost

__all__ = ["Communicator", "Context", "GradientReducer", "MusterError", "Place", "ScalingReport", "StepCost", "Work"]
