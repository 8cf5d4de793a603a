"""Finds and loads libmuster.so, and turns its statuses into exceptions.

ctypes releases the interpreter lock during each call, so other threads of the program continue while one waits.
"""

import ctypes
import functools
import os
import weakref
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

API_VERSION = 9  # of the header that the structures below follow


class MusterError(RuntimeError):
    """An error of the runtime: `code` is the kind ("timed_out", "peer_closed", ...), the text is the message."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.code, str(self))  # by its text alone a pool of processes could not make it again


class RoundEnded(MusterError):
    """The round is over, and this process may enter the next one: let it pass out of a function with @muster.recoverable."""


# The types of fields and arguments by letter: p any pointer or handle, s a text, i int, l int64, n size_t and uint64, f float,
# d double, and in capitals a pointer to one of them. Fields may also have the types that are defined below, by name.
_TYPES = {"p": c_void_p, "s": c_char_p, "i": c_int, "l": c_int64, "n": c_size_t, "f": c_float, "d": c_double,
          "I": POINTER(c_int), "L": POINTER(c_int64), "N": POINTER(c_size_t), "D": POINTER(c_double)}


def _structure(name, fields):
    """`fields`: "size:n slices:SliceFields*", in the order of the header's structure. A size at the beginning sets itself."""
    pairs = [field.split(":") for field in fields.split()]

    def begin(self, *values, **named):
        size = (ctypes.sizeof(self),) if pairs[0][0] == "size" else ()
        ctypes.Structure.__init__(self, *size, *values, **named)

    members = {"_fields_": [(field, _TYPES[letter]) for field, letter in pairs], "__init__": begin}
    kind = type(name, (ctypes.Structure,), members)
    _TYPES[name + "*"] = POINTER(kind)
    return kind


ContextOptions = _structure("ContextOptions", "size:n meeting_timeout_ms:l operation_timeout_ms:l transport:i")
PlaceFields = _structure("PlaceFields", "size:n rank:i world_size:i local_rank:i local_world_size:i group_rank:i "
                                        "device:i round:l restart_count:l")
ParameterFields = _structure("ParameterFields", "name:s shape:L dimension_count:n type:i data:p")
SliceFields = _structure("SliceFields", "parameter:i offset:n count:n")
BucketFields = _structure("BucketFields", "size:n index:n gradients:p count:n type:i samples:f step:n "
                                          "slices:SliceFields* slice_count:n ready:p")
NextFields = _structure("NextFields", "size:n collective:i type:i input:p output:p count:n reduce:i root:i weight:f "
                                      "after:p")

ADVANCE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(BucketFields), c_int, POINTER(NextFields))
COLLECTIVE_COUNT = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(BucketFields))
PREPARE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(POINTER(BucketFields)), c_size_t)
KEEP = ctypes.CFUNCTYPE(c_size_t, c_void_p, c_void_p)
RESTORE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
_TYPES |= {"ADVANCE": ADVANCE, "COLLECTIVE_COUNT": COLLECTIVE_COUNT, "PREPARE": PREPARE, "KEEP": KEEP, "RESTORE": RESTORE}
ExchangeFields = _structure("ExchangeFields", "size:n name:s argument:p advance:ADVANCE "
                                              "collective_count:COLLECTIVE_COUNT prepare:PREPARE keep:KEEP "
                                              "restore:RESTORE")
ReducerOptions = _structure("ReducerOptions", "size:n bucket_cap_mb:d first_bucket_mb:d last_bucket_mb:d wire:i "
                                              "power_rank:i power_start_step:n order:i uneven_inputs:i finite_check:i "
                                              "padding:i own_piece:i exchange:ExchangeFields*")
ReducerStateFields = _structure("ReducerStateFields", "size:n plan:s own:p own_size:n")
StepCostFields = _structure("StepCostFields", "size:n total_ns:l compute_ns:l data_wait_ns:l exposed_ns:l "
                                              "communication_ns:l bytes:n samples:d")
BaselineFields = _structure("BaselineFields", "size:n world_size:i samples_per_second:d samples_per_step:d")
ScalingFields = _structure("ScalingFields", "size:n strong:d weak:d estimated:d samples_per_second:d step_count:n")
DistributedSamplerOptions = _structure("DistributedSamplerOptions", "size:n sample_count:l world_size:i rank:i seed:n "
                                                                    "sequential:i drop_last:i")
ElasticSamplerOptions = _structure("ElasticSamplerOptions", "size:n sample_count:l batch_size:l seed:n order:i deal:i "
                                                            "tail:i")
SampleStepFields = _structure("SampleStepFields", "size:n epoch:n first:n count:n ends_epoch:i")
OptimizerRule = _structure("OptimizerRule", "size:n kind:i learning_rate:d momentum:d beta1:d beta2:d epsilon:d "
                                            "weight_decay:d")
LossScalerOptions = _structure("LossScalerOptions", "size:n initial_scale:f growth_factor:d backoff_factor:d "
                                                    "growth_interval:i")
LossScaleFields = _structure("LossScaleFields", "size:n scale:f growth_tracker:i")
PieceFields = _structure("PieceFields", "size:n parameter:i offset:n count:n values:p first:p second:p updates:N")
CheckpointerOptions = _structure("CheckpointerOptions", "size:n directory:s keep_last:i keep_every:l when_busy:i "
                                                        "persist_timeout_ms:l no_copies:i copy_bytes_per_second:n "
                                                        "local_directory:s shared_every:i spread_replicas:i "
                                                        "verify_replicas:i")
TensorFields = _structure("TensorFields", "name:s shape:L dimension_count:n type:i data:p placement:i begin:n count:n")
ValueFields = _structure("ValueFields", "key:s value:s")
CheckpointStateFields = _structure("CheckpointStateFields", "size:n tensors:TensorFields* tensor_count:n "
                                                            "values:ValueFields* value_count:n rank_value:s "
                                                            "rank_bytes:s rank_bytes_size:n")
PartsFields = _structure("PartsFields", "size:n sent_counts:N sent_offsets:N expected_counts:N expected_offsets:N")
SaveReportFields = _structure("SaveReportFields", "size:n step:l persisted:i bytes:n blocked_ms:d persist_ms:d")

PLACE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(TensorFields), c_size_t)
APPLY = ctypes.CFUNCTYPE(c_int, c_void_p)

# The functions of muster.h with their arguments, a letter each.
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
    checkpointer_load ppL, checkpointer_load_as_saved pppL, checkpointer_load_clean ppLppL,
    checkpointer_loaded_value pspnN, checkpointer_loaded_key pnpnN, checkpointer_loaded_rank_value ppnN, checkpointer_loaded_rank_bytes ppN,
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


def fill(name, kind, *arguments):
    """Returns what muster_NAME writes to its last argument, of the type `kind`."""
    answer = kind()
    call(name, *arguments, ctypes.byref(answer))
    return answer


def make(name, *arguments):
    """Returns the handle that muster_NAME writes to its last argument; None for NULL."""
    return ask(name, c_void_p, *arguments)


def ask(name, kind, *arguments):
    """Returns the number that muster_NAME writes to its last argument."""
    return fill(name, kind, *arguments).value


class called_back:
    """A function for C, of the type `kind`, that runs body(). No exception may pass through C: it is raised by the `with` block."""

    def __init__(self, kind, body):
        self._failure = None

        def guarded(_, *arguments):
            try:
                body(*arguments)
                return 0
            except BaseException as failure:
                self._failure = failure
                return 1

        self._function = kind(guarded)

    def __enter__(self):
        return self._function

    def __exit__(self, kind, error, _):
        if self._failure is not None and isinstance(error, MusterError):
            raise self._failure from None


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
