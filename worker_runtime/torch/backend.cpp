// The parts that all operations share, messages, and the group's life. Collectives: moves.cpp, reductions.cpp.
#include "worker_runtime/torch/backend.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <utility>

#include "worker_runtime/torch/marks.h"

namespace muster::torch_backend {

namespace {

/// How long shutdown() waits for what is in progress: the other ranks take part in it soon, or never.
constexpr std::chrono::seconds shutdown_grace{5};

std::exception_ptr as_torch_error(const std::string& text) {
    return std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, text));
}

/// Is `kind` one of two ranks only?
bool is_message(c10d::OpType kind) {
    return kind == c10d::OpType::SEND || kind == c10d::OpType::RECV || kind == c10d::OpType::RECVANYSOURCE;
}

}  // namespace

MusterBackend::MusterBackend(std::shared_ptr<Group> group, c10::intrusive_ptr<Options> options)
    : Backend(group->rank(), group->size()), group_(std::move(group)), options_(std::move(options)) {
    init();
}

void MusterBackend::check(const at::Tensor& tensor, const char* what) const {
    require(tensor.device().is_cpu(), what, ": the tensor is on ", tensor.device(),
            ", and the muster back end serves tensors on the CPU; move it there, or use "
            "init_process_group(\"cpu:muster,cuda:nccl\")");
    require(tensor.layout() == c10::kStrided, what, ": the tensor has the layout ", tensor.layout(),
            ", and muster moves dense tensors; call tensor.to_dense() first");
}

void MusterBackend::check_list(const Tensors& list, const char* what) const {
    require(list.size() == static_cast<std::size_t>(size_), what, ": the list has ", list.size(),
            " tensors; it needs one for each of the ", size_, " ranks");
    for (const auto& tensor : list) {
        check(tensor, what);
        require(tensor.scalar_type() == list.front().scalar_type(), what,
                ": the tensors of the list have different types, ", list.front().scalar_type(), " and ",
                tensor.scalar_type(), "; convert them to one");
    }
}

void MusterBackend::check_piece(const Tensors& list, int rank, const at::Tensor& tensor, const char* what,
                                const char* which) const {
    const auto& piece = list[static_cast<std::size_t>(rank)];
    require(piece.numel() == tensor.numel() && piece.scalar_type() == tensor.scalar_type(), what, ": tensor ", rank,
            " of the list has ", piece.numel(), " elements of ", piece.scalar_type(), ", and the ", which, " ",
            tensor.numel(), " of ", tensor.scalar_type(), "; both need the same number and type of elements");
}

void MusterBackend::hold_pairs(Call& call, const Tensors& outputs, const Tensors& inputs, const char* what,
                               bool gathers) const {
    require(outputs.size() == inputs.size(), what, ": ", inputs.size(), " inputs and ", outputs.size(),
            " outputs; pass one output for each input");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        check(inputs[i], what);
        check(outputs[i], what);
        const auto& all = gathers ? outputs[i] : inputs[i];
        const auto& one = gathers ? inputs[i] : outputs[i];
        require(all.numel() == size_ * one.numel(), what, ": the ", gathers ? "output" : "input", " has ", all.numel(),
                " elements; ",
                gathers ? "output tensor size must be equal to world_size times input tensor size"
                        : "input tensor must be the same size as output size times world size",
                ", which is ", size_ * one.numel());
        require(all.scalar_type() == one.scalar_type(), what,
                gathers ? ": output tensor must have the same type as input tensor, not "
                        : ": input tensor must be the same type as the output tensor, not ",
                all.scalar_type(), " for ", one.scalar_type());
        call.held.insert(call.held.end(), {outputs[i], dense(outputs[i]), dense(inputs[i])});
    }
}

bool MusterBackend::has_root(std::int64_t root, const char* what) const {
    require(root >= 0 && root < size_, what, ": the root is rank ", root, ", and the group has the ranks 0 to ",
            size_ - 1, "; pass one of these");
    return root == rank_;
}

at::Tensor MusterBackend::dense(const at::Tensor& tensor) {
    // A conjugate that is not computed yet has the bytes of the original.
    if (tensor.is_conj() || tensor.is_neg()) return tensor.resolve_conj().resolve_neg().contiguous();
    return tensor.is_contiguous() ? tensor : tensor.contiguous();
}

void MusterBackend::land(const at::Tensor& tensor, const at::Tensor& twin) {
    if (!tensor.is_same(twin)) tensor.copy_(twin);
}

MusterBackend::WorkPtr MusterBackend::start(Call call, Body body, std::shared_ptr<Lane> lane,
                                            std::function<void(BackendWork&)> after) {
    const ReturnToPython returns;
    Graveyard::of_process().empty();
    try {
        group_->check_usable();
    } catch (const GroupError& error) {
        C10_THROW_ERROR(DistBackendError, error.what());
    }
    const auto number = is_message(call.kind) ? number_.load() : ++number_;
    auto work =
        c10::make_intrusive<BackendWork>(rank_, call.kind, call.title, group_->name(), std::move(call.outputs), number);
    const auto given = call.timeout.count() > 0 ? call.timeout : options_->timeout;
    struct Job {
        std::shared_ptr<Group> group;
        std::uint32_t mark;
        c10::intrusive_ptr<BackendWork> work;
        Tensors held;
        Body body;
        std::function<void(BackendWork&)> after;
        std::int64_t timeout;
        const char* title;
        bool is_of_all;
        bool is_inference;
    };
    auto job = std::make_shared<Job>(Job{group_, call.mark, work, std::move(call.held), std::move(body),
                                         std::move(after), static_cast<std::int64_t>(given.count()), call.title,
                                         !is_message(call.kind), c10::InferenceMode::is_enabled()});
    const auto run = [job] {
        std::exception_ptr failure;
        try {
            // Of the caller's state, only this decides whether tensors may be written. at::ThreadLocalState has more,
            // and may own Python objects, which a thread of ours must not destroy.
            const c10::InferenceMode inference(job->is_inference);
            const at::NoGradGuard no_gradients;
            const CollectivesMark mark(job->mark);
            job->body(*job->group, job->held, job->timeout);
            if (job->after) job->after(*job->work);
        } catch (const GroupError& error) {
            std::string text = with_marks_explained(error.what());
            if (error.status() == MUSTER_INVALID_ARGUMENT && job->is_of_all &&
                text.find("ranks differ") != std::string::npos)
                text += "; all ranks must call the same operations in the same order, with equal sizes and types";
            if (error.status() == MUSTER_TIMED_OUT)
                text += "; its timeout was " + std::to_string(job->timeout) + " ms (init_process_group, new_group)";
            failure = as_torch_error(text);
        } catch (...) {
            failure = std::current_exception();
        }
        // Whoever waits destroys what a thread of ours held.
        Graveyard::of_process().bury(std::move(job->held));
        job->work->end(failure);
    };
    if (!lane) lane = group_->lane();
    if (!call.is_async && lane->run_here(run)) return work;
    Lane::Job queued{.work = run,
                     .is_needed = [job] { return job->work->has_future(); },
                     .then = [job] { job->work->complete_future(); }};
    require(lane->post(std::move(queued)), call.title, ": not started, because more than ", queued_max,
            " operations are queued, all ", threads_max,
            " threads wait, or this process ends; wait for the works that "
            "you start");
    const std::lock_guard lock(coalescing_mutex_);
    if (coalesced_) coalesced_->push_back(work);
    return work;
}

MusterBackend::WorkPtr MusterBackend::move(Tensors& tensors, int peer, int tag, bool sends) {
    require(tensors.size() == 1, "send and recv take one tensor, not ", tensors.size());
    const char* const title = sends ? "muster:send" : peer < 0 ? "muster:recvAnySource" : "muster:recv";
    check(tensors[0], title);
    const auto twin = dense(tensors[0]);
    const auto piece = piece_of(twin);
    const auto marked = piece.type == MUSTER_U8 ? mark_of_message(twin.scalar_type(), static_cast<std::uint32_t>(tag))
                                                : static_cast<std::uint32_t>(tag);
    Call call{.kind = sends      ? c10d::OpType::SEND
                      : peer < 0 ? c10d::OpType::RECVANYSOURCE
                                 : c10d::OpType::RECV,
              .title = title,
              .outputs = tensors,
              .held = {tensors[0], twin}};
    auto source = std::make_shared<int>(peer);
    return start(
        std::move(call),
        [=](Group& group, Tensors& held, std::int64_t timeout) {
            if (sends) return group.send(piece, peer, marked, timeout);
            if (peer < 0)
                *source = group.receive_any(piece, marked, timeout);
            else
                group.receive(piece, peer, marked, timeout);
            land(held[0], held[1]);
        },
        group_->lane(peer < 0 ? -2 : peer, sends), [source](BackendWork& work) { work.set_source(*source); });
}

MusterBackend::WorkPtr MusterBackend::send(Tensors& tensors, int peer, int tag) {
    return move(tensors, peer, tag, true);
}

MusterBackend::WorkPtr MusterBackend::recv(Tensors& tensors, int peer, int tag) {
    return move(tensors, peer, tag, false);
}

MusterBackend::WorkPtr MusterBackend::recvAnysource(Tensors& tensors, int tag) {
    return move(tensors, -1, tag, false);
}

MusterBackend::WorkPtr MusterBackend::barrier(const c10d::BarrierOptions& opts) {
    return start(
        {.kind = c10d::OpType::BARRIER, .title = "muster:barrier", .timeout = opts.timeout, .is_async = opts.asyncOp},
        [](Group& group, Tensors&, std::int64_t timeout) { group.barrier(timeout); });
}

/// The failure of a barrier names the ranks that did not come, so nothing is to be monitored beside it.
void MusterBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool /*wait_all_ranks*/) {
    auto sync = opts;
    sync.asyncOp = false;
    barrier(sync)->wait();
}

bool MusterBackend::supportsTensorAlloc(c10::DeviceIndex /*device*/) {
    return group_->shares_host_memory();
}

at::Tensor MusterBackend::allocateTensor(long size, at::TensorOptions options) {
    require(size >= 0, "allocate_tensor: the size is ", size, "; it is a number of elements, 0 or more");
    require(options.device().is_cpu(), "allocate_tensor: the device is ", options.device(),
            ", and the muster back end serves the CPU");
    std::string why;
    void* const data = Group::host_memory(static_cast<std::size_t>(size) * options.dtype().itemsize(), why);
    if (data == nullptr) {
        TORCH_WARN_ONCE("allocate_tensor: ", why, "; until then tensors are ordinary memory, which collectives copy");
        return at::empty({size}, options);
    }
    return at::from_blob(
        data, {size},
        [forks = fork_count.load()](void* memory) {
            // A forked child has the tensor but not the memory, and may have memory of its own at that address.
            if (forks == fork_count) Group::release_host_memory(memory);
        },
        options);
}

void MusterBackend::startCoalescing() {
    const std::lock_guard lock(coalescing_mutex_);
    coalesced_.emplace();
}

MusterBackend::WorkPtr MusterBackend::endCoalescing() {
    std::vector<WorkPtr> parts;
    {
        const std::lock_guard lock(coalescing_mutex_);
        if (coalesced_) parts = std::move(*coalesced_);
        coalesced_.reset();
    }
    struct Waited {
        std::vector<WorkPtr> parts;
        c10::intrusive_ptr<BackendWork> all;
    };
    auto all = c10::make_intrusive<BackendWork>(rank_, c10d::OpType::COALESCED, "muster:coalesced", group_->name(),
                                                Tensors(), number_);
    const auto waited = std::make_shared<Waited>(Waited{std::move(parts), all});
    const auto wait = [waited] {
        std::exception_ptr failure;
        for (auto& part : waited->parts) {
            try {
                part->wait();
            } catch (...) {
                if (!failure) failure = std::current_exception();
            }
        }
        waited->all->end(failure);
        waited->all->complete_future();
    };
    require(Threads::of_process().run(wait), "coalesced operations: all ", threads_max,
            " threads wait, or this process ends; wait for the works that you start");
    return all;
}

c10d::ErrorType MusterBackend::getError() {
    switch (group_->status()) {
        case MUSTER_OK: return c10d::ErrorType::SUCCESS;
        case MUSTER_TIMED_OUT: return c10d::ErrorType::TIMEOUT;
        case MUSTER_PEER_CLOSED: return c10d::ErrorType::REMOTE_ERROR;
        default: return c10d::ErrorType::COMM_ERROR;
    }
}

void MusterBackend::abort() {
    group_->abort("abort() of the process group was called");
}

void MusterBackend::shutdown() {
    group_->settle(std::chrono::steady_clock::now() + shutdown_grace);
}

}  // namespace muster::torch_backend
