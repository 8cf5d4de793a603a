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

# The functions of muster.h and the types of their arguments, a letter each: p any pointer or handle, s a text, i int, l int64,
# n size_t and uint64, f float, d double, and in capitals a pointer to one of them.
_TYPES = {"p": c_void_p, "s": c_char_p, "i": c_int, "l": c_int64, "n": c_size_t, "f": c_float, "d": c_double,
          "I": POINTER(c_int), "L": POINTER(c_int64), "N": POINTER(c_size_t), "D": POINTER(c_double)}
_FUNCTIONS = """
    context_open pp, context_place pp, context_world pp, context_can_rejoin pi, context_rejoin p, context_release p,
    heartbeat, progress l, section_enter slN, section_leave n, store_set pspn, store_get pslpnN, store_add pslL,
    store_erase psI, communicator_rank pI, communicator_size pI, communicator_transport ppnN, communicator_split piip,
    communicator_status p, communicator_abort ps, communicator_release p, allocate pnp, memory_data ppN,
    memory_release p, barrier plp, all_reduce ppniilp, all_reduce_weighted ppniflp, all_reduce_premul ppnidlp,
    reduce_scatter pppniilp, reduce_scatter_premul pppnidlp, all_gather pppnilp, broadcast ppniilp, all_to_all pppnilp,
    gather pppniilp, scatter pppniilp, reduce pppniiilp, reduce_premul pppnidilp, all_to_all_uneven pppiplp,
    send ppniilp, receive ppniilp, work_wait p, work_done pI, work_took pL, work_release p, reducer_make ppnpp,
    reducer_begin_step pfI, reducer_begin_local_step pI, reducer_gradient pipN, reducer_mark_ready pi, reducer_finish p,
    reducer_join ppp, reducer_used piI, reducer_zero_gradients p, reducer_clip_grad_norm pdD, reducer_description ppnN,
    reducer_keep pp, reducer_restore pp, reducer_release p, reducer_add_data_wait pl, reducer_last_step pp,
    reducer_first_step pp, reducer_mean_step pp, reducer_lateness piL, reducer_scaling_report ppppnN,
    distributed_sampler_make pp, distributed_sampler_set_epoch pn, distributed_sampler_size pN,
    distributed_sampler_indices pLnN, distributed_sampler_order_repeated pI, distributed_sampler_release p,
    elastic_sampler_make pp, elastic_sampler_next pp, elastic_sampler_after ppp, elastic_sampler_indices ppiiLnN,
    elastic_sampler_commit pp, elastic_sampler_set_batch_size pl, elastic_sampler_steps_left pN,
    elastic_sampler_state ppnN, elastic_sampler_load_state ps, elastic_sampler_sample_seed pnnN,
    elastic_sampler_release p, optimizer_defaults ip, optimizer_make ppp, optimizer_step p,
    optimizer_set_learning_rate pd, optimizer_piece_count pN, optimizer_get_piece pnp, optimizer_reload p,
    optimizer_release p, loss_scaler_make pp, loss_scaler_state pp, loss_scaler_restore pp, loss_scaler_unscale ppI,
    loss_scaler_update p, loss_scaler_release p, batch_statistics pppnN, batch_gradients pppn, checkpointer_open ppp,
    checkpointer_save plpi, checkpointer_snapshot plp, checkpointer_reserve pp, checkpointer_copied_step pL,
    checkpointer_load ppL, checkpointer_load_as_saved pppL, checkpointer_loaded_value pspnN,
    checkpointer_loaded_key pnpnN, checkpointer_loaded_rank_value ppnN, checkpointer_loaded_rank_bytes ppN,
    checkpointer_loaded_from pI, checkpointer_loaded_path ppnN, checkpointer_loaded_skipped ppnN, checkpointer_finish p,
    checkpointer_take_reports pN, checkpointer_report pnppnN, checkpointer_release p, preemption_watch pInp,
    preemption_count pI, preemption_agreed pI, preemption_release p
"""


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
    for function in _FUNCTIONS.split(","):
        name, *arguments = function.split()
        getattr(library, f"muster_{name}").argtypes = [_TYPES[letter] for letter in "".join(arguments)]
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
