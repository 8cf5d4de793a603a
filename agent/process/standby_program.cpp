#include "agent/process/standby_program.h"

#include "agent/process/standby_table.h"
#include "agent/supervision/worker_environment.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::string_view standby_source = R"(
def stand_by():
    import _socket
    import os
    import sys

    def be_idle():
        """Where the way back is open, which a child tries: raising a priority takes CAP_SYS_NICE of the host, and that of
        a container's user namespace looks the same."""
        child = os.fork()
        if child == 0:
            try:
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
                os._exit(0)
            except OSError:
                os._exit(1)
        if os.waitpid(child, 0)[1] != 0:
            return lambda: None
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

        def be_normal():
            for thread in os.listdir("/proc/self/task"):
                try:
                    os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))
                except ProcessLookupError:
                    pass  # it has just ended
        return be_normal

    def receive(connection):
        """The worker's variables, stdout and stderr."""
        data, ancillary, _, _ = connection.recvmsg(1, _socket.CMSG_SPACE(12))
        if data != b"t" or not ancillary:
            os._exit(0)
        raw = ancillary[0][2]
        image, out, err = (int.from_bytes(raw[at:at + 4], sys.byteorder) for at in (0, 4, 8))
        size = os.fstat(image).st_size
        content = b""
        while len(content) < size:
            content += os.pread(image, size - len(content), len(content))
        os.close(image)
        numbers = [int.from_bytes(content[at:at + 4], "little") for at in (0, 4)]
        at = 8
        for _ in range(2):
            at += 4 + 8 * int.from_bytes(content[at:at + 4], "little")
        texts = content[at + 1:].split(b"\0")[numbers[0]:numbers[0] + numbers[1]]
        return dict(os.fsdecode(text).split("=", 1) for text in texts), out, err

    def take_stream(stream, descriptor):
        """What the imports have printed comes first, as in a normal start. Returns it."""
        kept = os.pread(stream, os.fstat(stream).st_size, 0)
        os.dup2(descriptor, stream)
        os.close(descriptor)
        return kept

    def note_reads():
        """What the imports learn from a variable cannot be changed. Returns a function that ends the notes, and returns
        the names. A loop over all variables, such as tqdm's, looks for names of its own."""
        class Variables(dict):
            names = set()

            def __getitem__(self, name):
                if sys._getframe(2).f_code.co_name != "__iter__":
                    Variables.names.add(os.fsdecode(name))
                return super().__getitem__(name)

        def put(data):
            os.environ._data = os.environb._data = data
        put(Variables(os.environ._data))

        def end():
            put(dict(os.environ._data))
            return Variables.names
        return end

    def write(stream, kept):
        while kept:
            kept = kept[os.write(stream, kept):]

    def run_script(path, space):
        if sys.version_info >= (3, 9) and not os.path.isabs(path):
            path = os.getcwd() + "/" + path
        loader = sys.modules["_frozen_importlib_external"].SourceFileLoader
        space.update(__file__=path, __cached__=None, __loader__=loader("__main__", path))
        with open_code(path) as file:
            source = file.read()
        exec(compile(source, path, "exec", dont_inherit=True), space)

    def run_module(name):
        import runpy
        runpy._run_module_as_main(name)

    def without_us(trace):
        while trace is not None and trace.tb_frame.f_code.co_filename == "<string>":
            trace = trace.tb_next
        return trace

    def holds_torch(package):
        own = [module for name, module in sys.modules.items() if name.split(".")[0] == package]
        return any(getattr(module, "__dict__", {}).get("torch") is sys.modules["torch"] for module in own)

    def watch(roots, variables):
        """Until the script imports one of `roots`, a change of a variable that such imports read starts it anew."""
        import builtins
        system = sys.modules["_frozen_importlib"]  # importlib.import_module calls its _gcd_import
        usual, usual_call, folder, pid = builtins.__import__, system._gcd_import, os.getcwd(), os.getpid()

        def end_if_root(name, level):
            if level or name.split(".")[0] not in roots:
                return
            roots.clear()
            if builtins.__import__ is end_at_import:
                builtins.__import__ = usual
            if system._gcd_import is end_at_call:
                system._gcd_import = usual_call

        def end_at_import(name, globals=None, locals=None, fromlist=(), level=0):
            end_if_root(name, level)
            return usual(name, globals, locals, fromlist, level)

        def end_at_call(name, package=None, level=0):
            end_if_root(name, level)
            return usual_call(name, package, level)

        def start_anew_at_change(event, arguments):
            if not roots or event not in ("os.putenv", "os.unsetenv") or os.getpid() != pid:
                return
            name, value = os.fsdecode(arguments[0]), os.fsdecode(arguments[1]) if arguments[1:] else None
            if not name.startswith(@READ_AT_IMPORT@) or name.startswith(@READ_LATER@) or os.environ.get(name) == value:
                return
            module = "torch" if "torch" in roots else min(roots)
            os.write(2, f"muster: {name} is changed before {module} is imported, which a standby process has done already: "
                        "this worker starts anew; set it in muster's environment to keep the warm start\n".encode())
            os.chdir(folder)
            os.execvpe(command[0], command, variables)

        # warnings.warn passes over frames of the import system, so that a module's warning names the line that imports it.
        for function in (end_at_import, end_at_call):
            function.__code__ = function.__code__.replace(co_filename="<frozen importlib._bootstrap>")
        builtins.__import__, system._gcd_import = end_at_import, end_at_call
        sys.addaudithook(start_anew_at_change)

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, 3)
    os.set_inheritable(3, False)
    imports, command = sys.argv[1], sys.argv[2:]
    is_module = command[2] == "-m"
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(command)
    sys.argv = ["-m"] + command[4:] if is_module else command[2:]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(command[2]))
    space = sys.modules["__main__"].__dict__
    from io import open_code
    be_normal = be_idle() if @IDLE@ else lambda: None
    end_notes = note_reads()
    roots = set()  # torch and what imports it, or else all
    for name in imports.split(",") if imports else ("torch", "torch._dynamo"):
        had_torch = "torch" in sys.modules
        try:
            __import__(name)
        except ModuleNotFoundError:
            if imports:
                raise
        else:
            if not had_torch and "torch" in sys.modules:
                roots = {"torch"}
            if not had_torch or holds_torch(name.split(".")[0]):
                roots.add(name.split(".")[0])
    names = end_notes()
    passing = names & set(@PASSING@)
    if passing:
        sys.exit(f"its imports have read {min(passing)}, which each round sets anew")
    be_normal()
    connection.send(b"R" if "@SLOT@" in names else b"r")

    variables, out, err = receive(connection)
    for name in ("@SLOT@", *@PASSING@):
        if name in variables:
            os.environ[name] = variables[name]
        else:
            os.environ.pop(name, None)
    if not is_module and not os.access(command[2], os.R_OK):
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = take_stream(1, out), take_stream(2, err)
    connection.send(b"g")
    connection.close()
    write(1, kept[0])
    write(2, kept[1])
    if roots:
        watch(roots, variables)
    del kept, variables, connection, names, space["stand_by"]
    try:
        if is_module:
            run_module(command[3])
        else:
            run_script(command[2], space)
    except SystemExit:
        raise
    except BaseException:
        shown = sys.excepthook

        def hook(kind, value, trace):
            trace = without_us(trace)
            sys.excepthook = shown
            sys.last_traceback = trace
            shown(kind, value.with_traceback(trace), trace)
        sys.excepthook = hook
        raise


stand_by()
)";

void put(std::string& text, std::string_view place, std::string_view word) {
    for (auto at = text.find(place); at != std::string::npos; at = text.find(place))
        text.replace(at, place.size(), word);
}

/// Prefixes of what torch, numpy, OpenMP and the libraries for sums read while they are imported, and of what may look
/// so, but is read when it is used.
constexpr std::string_view read_at_import =
    R"(("CUDA_", "GOMP_", "HIP_", "KMP_", "MKL", "OMP_", "OPENBLAS_", "PYTORCH_", "ROCR_", "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_"))";
constexpr std::string_view read_later =
    R"(("TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_DIR", "TORCH_HOME", "TORCH_NCCL_"))";

std::string program_text(StandbyImport priority) {
    const auto names = variables_of_a_round();
    const auto passing = cat("(\"", join({names.begin(), names.end()}, "\", \""), "\")");
    std::string text(standby_source);
    put(text, "@IDLE@", priority == StandbyImport::idle ? "True" : "False");
    put(text, "@PASSING@", passing);
    put(text, "@READ_AT_IMPORT@", read_at_import);
    put(text, "@READ_LATER@", read_later);
    put(text, "@SLOT@", variable_of_a_slot);
    return text;
}

}  // namespace

WorkerCommand standby_command(const WorkerCommand& worker, const std::string& imports, StandbyImport priority) {
    auto standby = worker;
    standby.environment = lasting_environment(worker);
    standby.argv = {worker.argv[0], "-u", "-c", program_text(priority), imports};
    standby.argv.insert(standby.argv.end(), worker.argv.begin(), worker.argv.end());
    return standby;
}

}  // namespace muster::agent
