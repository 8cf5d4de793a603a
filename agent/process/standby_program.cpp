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
        """Where the way back is open: without CAP_SYS_NICE nobody may raise a priority again."""
        with open("/proc/self/status") as status:
            may = [int(line.split()[1], 16) >> 23 & 1 for line in status if line.startswith("CapEff:")]
        if not any(may) or os.sched_getscheduler(0) != os.SCHED_OTHER:
            return lambda: None
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

        def be_normal():
            for thread in os.listdir("/proc/self/task"):
                os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))
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

    def own_file(folder, name):
        if name.split(".")[0] in roots and folder == sys.path[0]:
            return None
        for end in ("/__init__.py", ".py"):
            path = folder + "/" + name.replace(".", "/") + end
            if os.path.isfile(path):
                return path

    def parts_of(node):
        for field in getattr(node, "_fields", ()):
            value = getattr(node, field, None)
            yield from value if isinstance(value, list) else [value]

    def words_of(node):
        """The names and the texts in a piece of a program."""
        for one in parts_of(node):
            if isinstance(one, str):
                yield one
            yield from words_of(one)

    def imported(node, kind, path):
        """The modules that an import statement names, each after the packages that it is in, and their folder."""
        if kind == "Import":
            names = [one.name for one in node.names]
        else:
            names = [".".join(filter(None, (node.module, one))) for one in ["", *(one.name for one in node.names)]]
        folder = sys.path[0]
        if getattr(node, "level", 0):
            folder = path.rsplit("/", node.level)[0] or "/"
        parts = [name.split(".") for name in names if name]
        return folder, [".".join(one[:count + 1]) for one in parts for count in range(len(one))]

    def steps_of(path, seen):
        """What a file and those that it imports of its own folders do, in order: they import and they set variables."""
        def look(node, is_certain):
            kind = type(node).__name__
            if kind in ("Import", "ImportFrom"):
                folder, names = imported(node, kind, path)
                files = [file for file in (own_file(folder, name) for name in names) if file]
                for file in files:
                    yield from steps_of(file, seen)
                if not files and not getattr(node, "level", 0):
                    yield "import", [node.module] if kind == "ImportFrom" else names, is_certain
            is_set = kind == "Subscript" and type(node.ctx).__name__ != "Load" or kind == "Call" and {
                "setdefault", "update", "pop", "putenv", "unsetenv"} & set(words_of(node.func))
            words = list(words_of(node)) if is_set else ()
            if "environ" in words or "putenv" in words or "unsetenv" in words:
                yield "set", words, True
            is_certain = is_certain and kind not in ("FunctionDef", "AsyncFunctionDef", "If", "ExceptHandler")
            for one in parts_of(node):
                yield from look(one, is_certain)

        if path in seen:
            return
        seen.add(path)
        with open_code(path) as file:
            only_syntax_tree = 0x400
            yield from look(compile(file.read(), path, "exec", only_syntax_tree, True), True)

    def steps_of_script():
        """Empty where its file is not known, or is no program: the worker says so."""
        path = os.path.realpath(command[2])
        if is_module:
            path = own_file(sys.path[0], command[3] + ".__main__") or own_file(sys.path[0], command[3])
        stderr, sys.stderr = sys.stderr, None  # the worker warns of the syntax
        try:
            return list(steps_of(path, set())) if path else []
        except (OSError, SyntaxError, ValueError, RecursionError):
            return []
        finally:
            sys.stderr = stderr

    def check_reads(names):
        """A worker that starts normally gives the imports what the imports here have not seen."""
        passing = names & set(@PASSING@)
        if passing:
            sys.exit(f"its imports have read {min(passing)}, which each round sets anew")
        to_come = {name.split(".")[0] for name in imports}
        for kind, words, _ in steps:
            if kind == "import":
                to_come -= {word.split(".")[0] for word in words}
            for word in words if to_come and kind == "set" else []:
                if word in names or word.startswith(@READ_BY_LIBRARIES@):
                    sys.exit(f"the script sets {word} before its imports; set it in front of muster")

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, 3)
    os.set_inheritable(3, False)
    chosen, command = sys.argv[1], sys.argv[2:]
    is_module = command[2] == "-m"
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(command)
    sys.argv = ["-m"] + command[4:] if is_module else command[2:]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(command[2]))
    space = sys.modules["__main__"].__dict__
    from io import open_code
    be_normal = be_idle()
    imports = chosen.split(",") if chosen not in ("", "auto") else ["torch", "torch._dynamo"]
    roots = {name.split(".")[0] for name in imports}
    steps = steps_of_script()
    if chosen == "auto":
        imports += [name for kind, names, is_certain in steps if kind == "import" and is_certain for name in names]
    end_notes = note_reads()
    for name in imports:
        try:
            __import__(name)
        except ModuleNotFoundError:
            if chosen not in ("", "auto"):
                raise
    names = end_notes()
    check_reads(names)
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
    del kept, variables, connection, steps, names, space["stand_by"]
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

/// Read by C++, or by a program that the libraries of an import contain.
constexpr std::string_view read_by_libraries =
    R"(("CUDA_", "GOMP_", "KMP_", "LD_", "MKL_", "OMP_", "OPENBLAS_", "PYTORCH_", "TORCH_"))";

std::string program_text() {
    const auto names = variables_of_a_round();
    const auto passing = cat("(\"", join({names.begin(), names.end()}, "\", \""), "\")");
    std::string text(standby_source);
    put(text, "@PASSING@", passing);
    put(text, "@READ_BY_LIBRARIES@", read_by_libraries);
    put(text, "@SLOT@", variable_of_a_slot);
    return text;
}

}  // namespace

WorkerCommand standby_command(const WorkerCommand& worker, const std::string& imports) {
    auto standby = worker;
    standby.environment = lasting_environment(worker);
    standby.argv = {worker.argv[0], "-u", "-c", program_text(), imports};
    standby.argv.insert(standby.argv.end(), worker.argv.begin(), worker.argv.end());
    return standby;
}

}  // namespace muster::agent
