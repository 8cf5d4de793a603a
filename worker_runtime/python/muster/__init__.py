"""The muster worker runtime for Python: who am I, move data with the other ranks, average gradients, and
which samples each step takes.

A thin layer over libmuster.so (the C API); no build step, and nothing but the standard library. Arrays are whatever has
the buffer protocol (array.array, bytearray, ctypes, numpy) or is a torch tensor on the CPU; neither numpy nor torch is
imported. PYTHON.md has examples.
"""

from muster.communicator import Communicator, Context, Place, Work
from muster.library import MusterError
from muster.optimizer import OptimizerPiece, ShardedOptimizer
from muster.reducer import GradientReducer, ScalingReport, StepCost
from muster.sampler import DistributedSampler, ElasticSampler
from muster.store import Store

__all__ = ["Communicator", "Context", "DistributedSampler", "ElasticSampler", "GradientReducer", "MusterError",
           "OptimizerPiece", "Place", "ScalingReport", "ShardedOptimizer", "StepCost", "Store", "Work"]
