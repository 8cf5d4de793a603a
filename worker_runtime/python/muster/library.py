"""Finds and loads libmuster.so, and turns its statuses into exceptions.

ctypes releases the interpreter lock during each call, so other threads of the program continue while one waits.
"""

import ctypes
import functools
import os
import weakref
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path

API_VERSION = 9  # of the header that the structures below follow


class MusterError(RuntimeError):
    """An error of the runtime: `code` is the kind ("timed_out", "peer_closed", ...), the text is the message."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class RoundEnded(MusterError):
    """The round is over, and this process may enter the next one: let it pass out of a function with @muster.recoverable."""


class ContextOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("meeting_timeout_ms", c_int64), ("operation_timeout_ms", c_int64),
                ("transport", c_int)]


class PlaceFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("rank", c_int), ("world_size", c_int), ("local_rank", c_int),
                ("local_world_size", c_int), ("group_rank", c_int), ("device", c_int), ("round", c_int64),
                ("restart_count", c_int64)]


class ParameterFields(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("shape", POINTER(c_int64)), ("dimension_count", c_size_t), ("type", c_int),
                ("data", c_void_p)]


class SliceFields(ctypes.Structure):
    _fields_ = [("parameter", c_int), ("offset", c_size_t), ("count", c_size_t)]


class BucketFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("index", c_size_t), ("gradients", c_void_p), ("count", c_size_t), ("type", c_int),
                ("samples", c_float), ("step", c_uint64), ("slices", POINTER(SliceFields)), ("slice_count", c_size_t),
                ("ready", c_void_p)]


class NextFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("collective", c_int), ("type", c_int), ("input", c_void_p), ("output", c_void_p),
                ("count", c_size_t), ("reduce", c_int), ("root", c_int), ("weight", c_float), ("after", c_void_p)]


ADVANCE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(BucketFields), c_int, POINTER(NextFields))
COLLECTIVE_COUNT = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(BucketFields))
PREPARE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(POINTER(BucketFields)), c_size_t)
KEEP = ctypes.CFUNCTYPE(c_size_t, c_void_p, c_void_p)
RESTORE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)


class ExchangeFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("argument", c_void_p), ("advance", ADVANCE),
                ("collective_count", COLLECTIVE_COUNT), ("prepare", PREPARE), ("keep", KEEP), ("restore", RESTORE)]


class ReducerOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("bucket_cap_mb", c_double), ("first_bucket_mb", c_double),
                ("last_bucket_mb", c_double), ("wire", c_int), ("power_rank", c_int), ("power_start_step", c_uint64),
                ("order", c_int), ("uneven_inputs", c_int), ("finite_check", c_int), ("padding", c_int), ("own_piece", c_int),
                ("exchange", POINTER(ExchangeFields))]


class ReducerStateFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("plan", c_char_p), ("own", c_void_p), ("own_size", c_size_t)]


class StepCostFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("total_ns", c_int64), ("compute_ns", c_int64), ("data_wait_ns", c_int64),
                ("exposed_ns", c_int64), ("communication_ns", c_int64), ("bytes", c_uint64), ("samples", c_double)]


class BaselineFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("world_size", c_int), ("samples_per_second", c_double),
                ("samples_per_step", c_double)]


class ScalingFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("strong", c_double), ("weak", c_double), ("estimated", c_double),
                ("samples_per_second", c_double), ("step_count", c_uint64)]


class DistributedSamplerOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("sample_count", c_int64), ("world_size", c_int), ("rank", c_int),
                ("seed", c_uint64), ("sequential", c_int), ("drop_last", c_int)]


class ElasticSamplerOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("sample_count", c_int64), ("batch_size", c_int64), ("seed", c_uint64),
                ("order", c_int), ("deal", c_int), ("tail", c_int)]


class SampleStepFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("epoch", c_uint64), ("first", c_uint64), ("count", c_uint64),
                ("ends_epoch", c_int)]


class OptimizerRule(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("learning_rate", c_double), ("momentum", c_double),
                ("beta1", c_double), ("beta2", c_double), ("epsilon", c_double), ("weight_decay", c_double)]


class LossScalerOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("initial_scale", c_float), ("growth_factor", c_double), ("backoff_factor", c_double),
                ("growth_interval", c_int32)]


class LossScaleFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("scale", c_float), ("growth_tracker", c_int32)]


class PieceFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("parameter", c_int), ("offset", c_size_t), ("count", c_size_t),
                ("values", c_void_p), ("first", c_void_p), ("second", c_void_p), ("updates", POINTER(c_uint64))]


class CheckpointerOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("directory", c_char_p), ("keep_last", c_int), ("keep_every", c_int64),
                ("when_busy", c_int), ("persist_timeout_ms", c_int64), ("no_copies", c_int),
                ("copy_bytes_per_second", c_uint64), ("local_directory", c_char_p), ("shared_every", c_int),
                ("spread_replicas", c_int), ("verify_replicas", c_int)]


class TensorFields(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("shape", POINTER(c_int64)), ("dimension_count", c_size_t), ("type", c_int),
                ("data", c_void_p), ("placement", c_int), ("begin", c_uint64), ("count", c_uint64)]


class ValueFields(ctypes.Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class CheckpointStateFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("tensors", POINTER(TensorFields)), ("tensor_count", c_size_t),
                ("values", POINTER(ValueFields)), ("value_count", c_size_t), ("rank_value", c_char_p),
                ("rank_bytes", c_char_p), ("rank_bytes_size", c_size_t)]


class PartsFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("sent_counts", POINTER(c_size_t)), ("sent_offsets", POINTER(c_size_t)),
                ("expected_counts", POINTER(c_size_t)), ("expected_offsets", POINTER(c_size_t))]


class SaveReportFields(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("step", c_int64), ("persisted", c_int), ("bytes", c_uint64),
                ("blocked_ms", c_double), ("persist_ms", c_double)]


PLACE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(TensorFields), c_size_t)
APPLY = ctypes.CFUNCTYPE(c_int, c_void_p)

_HANDLE = c_void_p
_LATE = (c_int64, POINTER(c_void_p))  # each operation's timeout and work
_TEXT = (c_void_p, c_size_t, POINTER(c_size_t))
_PROTOTYPES = {
    "context_open": (POINTER(ContextOptions), POINTER(_HANDLE)),
    "context_place": (_HANDLE, POINTER(PlaceFields)),
    "context_world": (_HANDLE, POINTER(_HANDLE)),
    "context_can_rejoin": (_HANDLE, c_int),
    "context_rejoin": (_HANDLE,),
    "context_release": (_HANDLE,),
    "heartbeat": (),
    "progress": (c_int64,),
    "section_enter": (c_char_p, c_int64, POINTER(c_uint64)),
    "section_leave": (c_uint64,),
    "store_set": (_HANDLE, c_char_p, c_void_p, c_size_t),
    "store_get": (_HANDLE, c_char_p, c_int64, c_void_p, c_size_t, POINTER(c_size_t)),
    "store_add": (_HANDLE, c_char_p, c_int64, POINTER(c_int64)),
    "store_erase": (_HANDLE, c_char_p, POINTER(c_int)),
    "communicator_rank": (_HANDLE, POINTER(c_int)),
    "communicator_size": (_HANDLE, POINTER(c_int)),
    "communicator_transport": (_HANDLE, *_TEXT),
    "communicator_split": (_HANDLE, c_int, c_int, POINTER(_HANDLE)),
    "communicator_status": (_HANDLE,),
    "communicator_abort": (_HANDLE, c_char_p),
    "communicator_release": (_HANDLE,),
    "allocate": (_HANDLE, c_size_t, POINTER(_HANDLE)),
    "memory_data": (_HANDLE, POINTER(c_void_p), POINTER(c_size_t)),
    "memory_release": (_HANDLE,),
    "barrier": (_HANDLE, *_LATE),
    "all_reduce": (_HANDLE, c_void_p, c_size_t, c_int, c_int, *_LATE),
    "all_reduce_weighted": (_HANDLE, c_void_p, c_size_t, c_int, c_float, *_LATE),
    "all_reduce_premul": (_HANDLE, c_void_p, c_size_t, c_int, c_double, *_LATE),
    "reduce_scatter": (_HANDLE, c_void_p, c_void_p, c_size_t, c_int, c_int, *_LATE),
    "reduce_scatter_premul": (_HANDLE, c_void_p, c_void_p, c_size_t, c_int, c_double, *_LATE),
    "all_gather": (_HANDLE, c_void_p, c_void_p, c_size_t, c_int, *_LATE),
    "broadcast": (_HANDLE, c_void_p, c_size_t, c_int, c_int, *_LATE),
    "all_to_all": (_HANDLE, c_void_p, c_void_p, c_size_t, c_int, *_LATE),
    "gather": (_HANDLE, c_void_p, c_void_p, c_size_t, c_int, c_int, *_LATE),
    "scatter": (_HANDLE, c_void_p, c_void_p, c_size_t, c_int, c_int, *_LATE),
    "reduce": (_HANDLE, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, *_LATE),
    "reduce_premul": (_HANDLE, c_void_p, c_void_p, c_size_t, c_int, c_double, c_int, *_LATE),
    "all_to_all_uneven": (_HANDLE, c_void_p, c_void_p, c_int, POINTER(PartsFields), *_LATE),
    "send": (_HANDLE, c_void_p, c_size_t, c_int, c_int, *_LATE),
    "receive": (_HANDLE, c_void_p, c_size_t, c_int, c_int, *_LATE),
    "work_wait": (_HANDLE,),
    "work_done": (_HANDLE, POINTER(c_int)),
    "work_took": (_HANDLE, POINTER(c_int64)),
    "work_release": (_HANDLE,),
    "reducer_make": (_HANDLE, POINTER(ParameterFields), c_size_t, POINTER(ReducerOptions), POINTER(_HANDLE)),
    "reducer_begin_step": (_HANDLE, c_float, POINTER(c_int)),
    "reducer_begin_local_step": (_HANDLE, POINTER(c_int)),
    "reducer_gradient": (_HANDLE, c_int, POINTER(c_void_p), POINTER(c_size_t)),
    "reducer_mark_ready": (_HANDLE, c_int),
    "reducer_finish": (_HANDLE,),
    "reducer_join": (_HANDLE, APPLY, c_void_p),
    "reducer_used": (_HANDLE, c_int, POINTER(c_int)),
    "reducer_zero_gradients": (_HANDLE,),
    "reducer_clip_grad_norm": (_HANDLE, c_double, POINTER(c_double)),
    "reducer_description": (_HANDLE, *_TEXT),
    "reducer_keep": (_HANDLE, POINTER(ReducerStateFields)),
    "reducer_restore": (_HANDLE, POINTER(ReducerStateFields)),
    "reducer_release": (_HANDLE,),
    "reducer_add_data_wait": (_HANDLE, c_int64),
    "reducer_last_step": (_HANDLE, POINTER(StepCostFields)),
    "reducer_first_step": (_HANDLE, POINTER(StepCostFields)),
    "reducer_mean_step": (_HANDLE, POINTER(StepCostFields)),
    "reducer_lateness": (_HANDLE, c_int, POINTER(c_int64)),
    "reducer_scaling_report": (_HANDLE, POINTER(BaselineFields), POINTER(ScalingFields), *_TEXT),
    "distributed_sampler_make": (POINTER(DistributedSamplerOptions), POINTER(_HANDLE)),
    "distributed_sampler_set_epoch": (_HANDLE, c_uint64),
    "distributed_sampler_size": (_HANDLE, POINTER(c_uint64)),
    "distributed_sampler_indices": (_HANDLE, POINTER(c_int64), c_size_t, POINTER(c_size_t)),
    "distributed_sampler_order_repeated": (_HANDLE, POINTER(c_int)),
    "distributed_sampler_release": (_HANDLE,),
    "elastic_sampler_make": (POINTER(ElasticSamplerOptions), POINTER(_HANDLE)),
    "elastic_sampler_next": (_HANDLE, POINTER(SampleStepFields)),
    "elastic_sampler_after": (_HANDLE, POINTER(SampleStepFields), POINTER(SampleStepFields)),
    "elastic_sampler_indices": (_HANDLE, POINTER(SampleStepFields), c_int, c_int, POINTER(c_int64), c_size_t,
                                POINTER(c_size_t)),
    "elastic_sampler_commit": (_HANDLE, POINTER(SampleStepFields)),
    "elastic_sampler_set_batch_size": (_HANDLE, c_int64),
    "elastic_sampler_steps_left": (_HANDLE, POINTER(c_uint64)),
    "elastic_sampler_state": (_HANDLE, *_TEXT),
    "elastic_sampler_load_state": (_HANDLE, c_char_p),
    "elastic_sampler_sample_seed": (_HANDLE, c_uint64, c_uint64, POINTER(c_uint64)),
    "elastic_sampler_release": (_HANDLE,),
    "optimizer_defaults": (c_int, POINTER(OptimizerRule)),
    "optimizer_make": (_HANDLE, POINTER(OptimizerRule), POINTER(_HANDLE)),
    "optimizer_step": (_HANDLE,),
    "optimizer_set_learning_rate": (_HANDLE, c_double),
    "optimizer_piece_count": (_HANDLE, POINTER(c_size_t)),
    "optimizer_get_piece": (_HANDLE, c_size_t, POINTER(PieceFields)),
    "optimizer_reload": (_HANDLE,),
    "optimizer_release": (_HANDLE,),
    "loss_scaler_make": (POINTER(LossScalerOptions), POINTER(_HANDLE)),
    "loss_scaler_state": (_HANDLE, POINTER(LossScaleFields)),
    "loss_scaler_restore": (_HANDLE, POINTER(LossScaleFields)),
    "loss_scaler_unscale": (_HANDLE, _HANDLE, POINTER(c_int)),
    "loss_scaler_update": (_HANDLE,),
    "loss_scaler_release": (_HANDLE,),
    "batch_statistics": (_HANDLE, c_void_p, c_void_p, c_size_t, POINTER(c_uint64)),
    "batch_gradients": (_HANDLE, c_void_p, c_void_p, c_size_t),
    "checkpointer_open": (_HANDLE, POINTER(CheckpointerOptions), POINTER(_HANDLE)),
    "checkpointer_save": (_HANDLE, c_int64, POINTER(CheckpointStateFields), c_int),
    "checkpointer_snapshot": (_HANDLE, c_int64, POINTER(CheckpointStateFields)),
    "checkpointer_reserve": (_HANDLE, POINTER(CheckpointStateFields)),
    "checkpointer_copied_step": (_HANDLE, POINTER(c_int64)),
    "checkpointer_load": (_HANDLE, POINTER(CheckpointStateFields), POINTER(c_int64)),
    "checkpointer_load_as_saved": (_HANDLE, PLACE, c_void_p, POINTER(c_int64)),
    "checkpointer_load_clean": (_HANDLE, POINTER(CheckpointStateFields), POINTER(c_int64), PLACE, c_void_p, POINTER(c_int64)),
    "checkpointer_loaded_value": (_HANDLE, c_char_p, *_TEXT),
    "checkpointer_loaded_key": (_HANDLE, c_size_t, *_TEXT),
    "checkpointer_loaded_rank_value": (_HANDLE, *_TEXT),
    "checkpointer_loaded_rank_bytes": (_HANDLE, POINTER(c_void_p), POINTER(c_size_t)),
    "checkpointer_loaded_from": (_HANDLE, POINTER(c_int)),
    "checkpointer_loaded_path": (_HANDLE, *_TEXT),
    "checkpointer_loaded_skipped": (_HANDLE, *_TEXT),
    "checkpointer_finish": (_HANDLE,),
    "checkpointer_take_reports": (_HANDLE, POINTER(c_size_t)),
    "checkpointer_report": (_HANDLE, c_size_t, POINTER(SaveReportFields), *_TEXT),
    "checkpointer_release": (_HANDLE,),
    "preemption_watch": (_HANDLE, POINTER(c_int), c_size_t, POINTER(_HANDLE)),
    "preemption_count": (_HANDLE, POINTER(c_int)),
    "preemption_agreed": (_HANDLE, POINTER(c_int)),
    "preemption_release": (_HANDLE,),
}


def _find():
    """The path of the library: MUSTER_LIBRARY, else beside this file, in a build tree of the repository, under the prefix of
    an installation, else the loader's search path."""
    named = os.environ.get("MUSTER_LIBRARY")
    if named:
        return named
    folder = Path(__file__).resolve().parent
    above = folder.parents[2]  # of a repository, or PREFIX/lib
    for place in (folder, above / "build/release/lib", above / "build/default/lib", above, *sorted(above.glob("*-linux-gnu"))):
        if (place / "libmuster.so.1").exists():
            return str(place / "libmuster.so.1")
    return "libmuster.so.1"


@functools.lru_cache(maxsize=None)
def _library():
    path = _find()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise MusterError("not_found", f"cannot load {path}: {error}; build it (cmake --build --preset release --target "
                                       "muster_capi), or set MUSTER_LIBRARY to its path") from None
    if library.muster_api_version() < API_VERSION:
        raise MusterError("unsupported", f"{path} has version {library.muster_api_version()} of the C API, and this "
                                         f"module needs {API_VERSION}; load a newer library (MUSTER_LIBRARY)")
    library.muster_last_error.restype = c_char_p
    library.muster_status_name.restype = c_char_p
    for name, arguments in _PROTOTYPES.items():
        getattr(library, f"muster_{name}").argtypes = arguments
    return library


def milliseconds(seconds):
    """Seconds as the library's milliseconds; None means the library's default."""
    if seconds is None:
        return 0
    if not seconds > 0:
        raise ValueError(f"a timeout must be a number of seconds > 0, not {seconds!r}")
    return max(1, round(seconds * 1000))


def call(name, *arguments):
    """Calls muster_NAME; a status other than 0 raises a MusterError with the library's message."""
    library = _library()
    status = getattr(library, f"muster_{name}")(*arguments)
    if status != 0:
        name = library.muster_status_name(status).decode()
        kind = RoundEnded if name == "round_ended" else MusterError
        raise kind(name, library.muster_last_error().decode("utf-8", "replace"))


def call_void(name, *arguments):
    """Calls muster_NAME, which cannot fail and returns nothing."""
    getattr(_library(), f"muster_{name}")(*arguments)


def make(name, *arguments):
    """Returns the handle that muster_NAME writes to its last argument; None for NULL."""
    handle = c_void_p()
    call(name, *arguments, ctypes.byref(handle))
    return handle.value


def ask(name, kind, *arguments):
    """Returns the number that muster_NAME writes to its last argument."""
    answer = kind()
    call(name, *arguments, ctypes.byref(answer))
    return answer.value


def text_of(name, *arguments):
    """Returns the text that muster_NAME copies."""
    needed = c_size_t()
    call(name, *arguments, None, 0, ctypes.byref(needed))
    room = ctypes.create_string_buffer(needed.value + 64)  # the text may have grown by a digit meanwhile
    call(name, *arguments, room, len(room), None)
    return room.value.decode("utf-8", "replace")


def _release(kind, value, owner):
    # A forked child has the handle but not the library's threads, and must not end the parent's job.
    if os.getpid() == owner:
        call(f"{kind}_release", value)


class Handle:
    """A handle of the library, released with this object or at the end of the process."""

    def __init__(self, kind, value):
        self.value = value
        self._release = weakref.finalize(self, _release, kind, value, os.getpid())

    def release(self):
        self._release()
