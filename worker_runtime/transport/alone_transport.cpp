#include "worker_runtime/transport/alone_transport.h"

#include <string.h>

#include <cstdlib>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/kernel/available_memory.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/arithmetic/reduce_kernels.h"
#include "worker_runtime/core/parts_table.h"

namespace muster::runtime {

namespace {

struct AlignedFree {
    void operator()(std::byte* data) const { ::free(data); }
};

struct OwnMemory {
    std::unique_ptr<std::byte, AlignedFree> data;
    std::span<std::byte> bytes;
};

class AloneTransport final : public Transport {
  public:
    [[nodiscard]] std::string_view name() const override { return "alone"; }

    Result<void> run(const Operation& operation, const RunTerms& /*terms*/) override {
        if (operation.kind == OperationKind::all_to_all_uneven) return move_own_part(operation);
        const std::size_t bytes = operation.count * size_of(operation.type);
        if (operation.reduce == ReduceOp::premul_sum) {
            reduce({.type = operation.type,
                    .reduce = operation.reduce,
                    .inputs = &operation.input,
                    .input_count = 1,
                    .outputs = &operation.output,
                    .output_count = 1,
                    .count = operation.count,
                    .weights = &operation.weight});
        } else if (operation.input != operation.output && bytes > 0) {
            ::memcpy(operation.output, operation.input, bytes);
        }
        return {};
    }

    Result<void> transfer(const Operation& operation, const RunTerms& /*terms*/) override {
        MUSTER_CHECK(false, "a world of one has no peer", operation.peer);
        return {};
    }

    Result<Memory> allocate(std::size_t size_bytes, const RunTerms& /*terms*/) override {
        const std::size_t rounded = (size_bytes + 4095) / 4096 * 4096 + 4096;
        auto memory = std::make_shared<OwnMemory>();
        const auto left = available_memory_bytes();
        if (left > rounded) memory->data.reset(static_cast<std::byte*>(std::aligned_alloc(4096, rounded)));
        if (!memory->data) {
            return Error{Errc::limit_exceeded, cat("cannot reserve ", size_bytes >> 10, " KiB for buffers: about ",
                                                   left >> 10, " KiB are left; give the job more memory")};
        }
        ::memset(memory->data.get(), 0, rounded);
        memory->bytes = {memory->data.get(), size_bytes};
        return Memory(std::shared_ptr<std::span<std::byte>>(memory, &memory->bytes));
    }

    void abort(std::string_view /*why*/) override {}

  private:
    static Result<void> move_own_part(const Operation& operation) {
        const PartsTable table(operation, 0, 1);
        if (auto text = table.contradiction([](int) { return std::string("rank 0"); }); !text.empty())
            return contradiction_error(std::move(text));
        const std::size_t element = size_of(operation.type);
        const Part &from = operation.parts->sent[0], &to = operation.parts->expected[0];
        if (from.count > 0)
            ::memcpy(static_cast<std::byte*>(operation.output) + to.offset * element,
                     static_cast<const std::byte*>(operation.input) + from.offset * element, from.count * element);
        return {};
    }
};

}  // namespace

std::unique_ptr<Transport> make_alone_transport() {
    return std::make_unique<AloneTransport>();
}

}  // namespace muster::runtime
