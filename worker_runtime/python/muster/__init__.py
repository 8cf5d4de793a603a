"""The muster worker runtime for Python: rank and world, collectives, averaged gradients, checkpoints and data order.

A thin layer over libmuster.so (the C API), without a build step and without dependencies outside the standard library.
Arrays are objects with the buffer protocol (array.array, bytearray, ctypes, numpy) or torch tensors on the CPU; neither
numpy nor torch is imported. PYTHON.md has examples.
"""

from muster.checkpoint import Checkpointer, CleanStep, Loaded, SaveReport
from muster.communicator import Communicator, Context, Place, Work
from muster.exchange import Bucket, BucketSlice, Collective, Exchange
from muster.library import MusterError, RoundEnded
from muster.loss_scaler import LossScaler
from muster.optimizer import OptimizerPiece, ShardedOptimizer
from muster.preemption import EXIT_SAVED_AND_LEFT, PreemptionNotice
from muster.random_state import random_state, set_random_state
from muster.recover import Resume, recoverable
from muster.reducer import GradientReducer, ReducerState, ScalingReport, StepCost
from muster.sampler import DistributedSampler, ElasticSampler
from muster.section import heartbeat, progress, section
from muster.store import Store
from muster.tensors import Shard

__version__ = "0.1.0"

__all__ = ["Bucket", "BucketSlice", "Checkpointer", "CleanStep", "Collective", "Communicator", "Context", "DistributedSampler",
           "EXIT_SAVED_AND_LEFT", "ElasticSampler", "Exchange", "GradientReducer", "Loaded", "LossScaler", "MusterError", "OptimizerPiece", "Place", "PreemptionNotice", "ReducerState",
           "Resume", "RoundEnded", "SaveReport", "ScalingReport", "Shard", "ShardedOptimizer", "StepCost", "Store", "Work", "heartbeat",
           "progress", "random_state", "recoverable", "section", "set_random_state"]
