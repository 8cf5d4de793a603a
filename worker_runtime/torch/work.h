// A started operation, as torch sees it, and what a thread of ours must not destroy.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace muster::torch_backend {

/// Tensors that a thread of ours has finished with. The last reference to a tensor may own a Python object, and to
/// destroy that the thread would need the interpreter's lock, which it never gets once the interpreter has ended. So
/// threads that called us from Python destroy them: in wait(), or at their next call. In a thread of ours empty() does
/// nothing.
class Graveyard {
  public:
    static Graveyard& of_process();
    void bury(std::vector<at::Tensor> tensors, c10::intrusive_ptr<c10::ivalue::Future> future = {});
    void empty();

  private:
    struct Grave {
        std::vector<at::Tensor> tensors;
        c10::intrusive_ptr<c10::ivalue::Future> future;
    };
    std::mutex mutex_;
    std::vector<Grave> graves_;
};

class BackendWork final : public c10d::Work {
  public:
    BackendWork(int rank, c10d::OpType kind, const char* title, const std::string& group,
                std::vector<at::Tensor> outputs, std::uint64_t number)
        : Work(rank, kind, title),
          name_(std::string(title) + " of group " + group),
          outputs_(std::move(outputs)),
          number_(number) {}
    /// The last reference may be that of a thread of ours.
    ~BackendWork() override;
    BackendWork& operator=(BackendWork&&) = delete;

    /// Wakes those in wait(). Call complete_future() afterwards, if it is needed, where it may run any code.
    void end(std::exception_ptr failure) { finish(std::move(failure)); }
    [[nodiscard]] bool has_future();
    void complete_future();
    void set_source(int rank) { source_ = rank; }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    std::vector<at::Tensor> result() override { return outputs_; }
    int sourceRank() const override { return source_; }
    std::uint64_t getSequencenumber() const override { return number_; }
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void synchronize() override { Graveyard::of_process().empty(); }
    void abort() override {}

  private:
    const std::string name_;
    std::vector<at::Tensor> outputs_;
    const std::uint64_t number_;
    int source_ = -1;
    std::mutex future_mutex_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    bool future_is_complete_ = false;
};

}  // namespace muster::torch_backend
