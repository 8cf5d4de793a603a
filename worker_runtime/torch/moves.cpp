// The collectives that move elements as they are: every type of element, and equal bytes on every transport.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <numeric>
#include <utility>

#include "worker_runtime/torch/backend.h"
#include "worker_runtime/torch/marks.h"

namespace muster::torch_backend {

namespace {

int known_type(at::ScalarType type) {
    switch (type) {
        case at::kFloat: return MUSTER_F32;
        case at::kDouble: return MUSTER_F64;
        case at::kHalf: return MUSTER_F16;
        case at::kBFloat16: return MUSTER_BF16;
        case at::kInt: return MUSTER_I32;
        case at::kLong: return MUSTER_I64;
        default: return MUSTER_U8;
    }
}

/// Of an operation that the library has: its signature names the types that it knows.
std::uint32_t mark_of_move(c10d::OpType kind, at::ScalarType type) {
    return known_type(type) == MUSTER_U8 ? mark_of({kind, type}) : 0;
}

/// Are these tensors one memory, one after another? Then it is used in place.
bool are_in_a_row(const std::vector<at::Tensor>& tensors) {
    const auto* next = static_cast<const std::byte*>(tensors.front().const_data_ptr());
    for (const auto& tensor : tensors) {
        if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg() || tensor.const_data_ptr() != next)
            return false;
        next += tensor.nbytes();
    }
    return true;
}

bool are_even(const std::vector<at::Tensor>& tensors) {
    for (const auto& tensor : tensors)
        if (tensor.numel() != tensors.front().numel()) return false;
    return true;
}

/// A one-dimensional tensor for all of these.
at::Tensor row_for(const std::vector<at::Tensor>& tensors) {
    std::int64_t count = 0;
    for (const auto& tensor : tensors) count += tensor.numel();
    return at::empty({count},
                     tensors.front().options().requires_grad(false).memory_format(at::MemoryFormat::Contiguous));
}

void take_from_row(const at::Tensor& row, const std::vector<at::Tensor>& tensors) {
    std::int64_t begin = 0;
    for (const auto& tensor : tensors) {
        tensor.copy_(row.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
        begin += tensor.numel();
    }
}

void put_into_row(const at::Tensor& row, const std::vector<at::Tensor>& tensors) {
    std::int64_t begin = 0;
    for (const auto& tensor : tensors) {
        row.narrow(0, begin, tensor.numel()).view(tensor.sizes()).copy_(tensor);
        begin += tensor.numel();
    }
}

/// As the library counts them: of a type that it does not know, bytes.
std::size_t count_of(const at::Tensor& tensor) {
    return known_type(tensor.scalar_type()) == MUSTER_U8 ? tensor.nbytes() : static_cast<std::size_t>(tensor.numel());
}

std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors) {
    std::vector<std::size_t> counts;
    for (const auto& tensor : tensors) counts.push_back(count_of(tensor));
    return counts;
}

}  // namespace

std::vector<std::size_t> MusterBackend::counts_of_splits(const at::Tensor& tensor,
                                                         const std::vector<std::int64_t>& splits,
                                                         const char* which) const {
    const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
    if (splits.empty()) {
        require(rows % size_ == 0, "all_to_all_single: the ", which, " has ", rows, " rows, which ", size_,
                " ranks cannot share equally; pass split sizes");
        return std::vector<std::size_t>(static_cast<std::size_t>(size_),
                                        count_of(tensor) / static_cast<std::size_t>(size_));
    }
    const auto sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
    require(splits.size() == static_cast<std::size_t>(size_) && sum == rows, "all_to_all_single: the ", which, " has ",
            rows, " rows, and its ", splits.size(), " split sizes add up to ", sum, "; pass one for each of the ",
            size_, " ranks, of all rows together");
    for (const auto split : splits)
        require(split >= 0, "all_to_all_single: a split size of the ", which, " is ", split,
                "; it is a number of rows, 0 or more");
    std::vector<std::size_t> counts;
    const std::size_t row_count = rows == 0 ? 0 : count_of(tensor) / static_cast<std::size_t>(rows);
    for (const auto split : splits) counts.push_back(static_cast<std::size_t>(split) * row_count);
    return counts;
}

Piece MusterBackend::piece_of(const at::Tensor& tensor) {
    Piece piece{.data = tensor.mutable_data_ptr(),
                .count = static_cast<std::size_t>(tensor.numel()),
                .type = known_type(tensor.scalar_type()),
                .element_bytes = static_cast<std::size_t>(tensor.element_size())};
    if (piece.type == MUSTER_U8) piece = {.data = piece.data, .count = piece.size_bytes()};
    return piece;
}

MusterBackend::WorkPtr MusterBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
    require(tensors.size() == 1, "broadcast takes one tensor, not ", tensors.size());
    check(tensors[0], "broadcast");
    (void)has_root(opts.rootRank, "broadcast");
    const auto twin = dense(tensors[0]);
    Call call{c10d::OpType::BROADCAST, "muster:broadcast", opts.timeout, opts.asyncOp, tensors, {tensors[0], twin}};
    call.mark = mark_of_move(call.kind, twin.scalar_type());
    return start(std::move(call), [piece = piece_of(twin), root = static_cast<int>(opts.rootRank)](
                                      Group& group, Tensors& held, std::int64_t timeout) {
        group.broadcast(piece, root, timeout);
        land(held[0], held[1]);
    });
}

MusterBackend::WorkPtr MusterBackend::gather_each(Call call, const std::vector<Tensors>& lists, const Tensors& inputs) {
    struct Shape {
        bool is_even;
        bool is_row;
    };
    std::vector<Shape> shapes;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const auto& list = lists[i];
        check(inputs[i], "all_gather");
        check_list(list, "all_gather");
        check_piece(list, rank_, inputs[i], "all_gather", "input");
        const bool is_even = are_even(list);
        shapes.push_back({is_even, is_even && are_in_a_row(list)});
        call.held.insert(call.held.end(), list.begin(), list.end());
        call.held.push_back(dense(inputs[i]));
        call.held.push_back(shapes.back().is_row ? list[0] : row_for(list));
    }
    return start(std::move(call),
                 [this_rank = rank_, ranks = size_, shapes](Group& group, Tensors& held, std::int64_t timeout) {
                     for (std::size_t i = 0; i < shapes.size(); ++i) {
                         const auto begin = held.begin() + static_cast<std::ptrdiff_t>(i) * (ranks + 2);
                         const Tensors to(begin, begin + ranks);
                         const auto& input = begin[ranks];
                         const auto& row = begin[ranks + 1];
                         const CollectivesMark mark(mark_of_move(c10d::OpType::ALLGATHER, input.scalar_type()));
                         if (shapes[i].is_even) {
                             group.all_gather(piece_of(input), row.mutable_data_ptr(), timeout);
                         } else {
                             std::int64_t done = 0;
                             for (int rank = 0; rank < ranks; ++rank) {
                                 const auto piece = row.narrow(0, done, to[static_cast<std::size_t>(rank)].numel());
                                 if (rank == this_rank) piece.copy_(input.reshape({-1}));
                                 group.broadcast(piece_of(piece), rank, timeout);
                                 done += piece.numel();
                             }
                         }
                         if (!shapes[i].is_row) take_from_row(row, to);
                     }
                 });
}

MusterBackend::WorkPtr MusterBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& opts) {
    require(inputs.size() == 1 && outputs.size() == 1, "all_gather takes one input tensor and one list");
    return gather_each({c10d::OpType::ALLGATHER, "muster:all_gather", opts.timeout, opts.asyncOp, outputs[0]}, outputs,
                       inputs);
}

MusterBackend::WorkPtr MusterBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& opts) {
    Tensors outputs{output};
    Tensors inputs{input};
    return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

MusterBackend::WorkPtr MusterBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                      const c10d::AllgatherOptions& opts) {
    Call call{c10d::OpType::_ALLGATHER_BASE, "muster:_all_gather_base", opts.timeout, opts.asyncOp, outputs};
    hold_pairs(call, outputs, inputs, "all_gather_into_tensor", true);
    return start(std::move(call), [](Group& group, Tensors& held, std::int64_t timeout) {
        for (std::size_t i = 0; i < held.size(); i += 3) {
            const CollectivesMark mark(mark_of_move(c10d::OpType::ALLGATHER, held[i + 2].scalar_type()));
            group.all_gather(piece_of(held[i + 2]), held[i + 1].mutable_data_ptr(), timeout);
            land(held[i], held[i + 1]);
        }
    });
}

MusterBackend::WorkPtr MusterBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& opts) {
    require(outputs.size() == static_cast<std::size_t>(size_), "all_gather_coalesced: ", outputs.size(),
            " lists; it needs one for each of the ", size_, " ranks");
    Tensors all;
    std::vector<Tensors> by_input(inputs.size());
    for (const auto& list : outputs) {
        require(list.size() == inputs.size(), "all_gather_coalesced: a list has ", list.size(), " tensors for ",
                inputs.size(), " inputs");
        all.insert(all.end(), list.begin(), list.end());
        for (std::size_t i = 0; i < list.size(); ++i) by_input[i].push_back(list[i]);
    }
    return gather_each(
        {c10d::OpType::ALLGATHER_COALESCED, "muster:all_gather_coalesced", opts.timeout, opts.asyncOp, all}, by_input,
        inputs);
}

MusterBackend::WorkPtr MusterBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                             const c10d::GatherOptions& opts) {
    require(inputs.size() == 1, "gather takes one input tensor, not ", inputs.size());
    check(inputs[0], "gather");
    const bool is_root = has_root(opts.rootRank, "gather");
    require(is_root == (outputs.size() == 1), "gather: the root, rank ", opts.rootRank,
            ", passes a list of tensors, and no other rank does");
    if (is_root) {
        check_list(outputs[0], "gather");
        for (int rank = 0; rank < size_; ++rank) check_piece(outputs[0], rank, inputs[0], "gather", "input");
    }
    Call call{c10d::OpType::GATHER, "muster:gather", opts.timeout, opts.asyncOp};
    call.mark = mark_of_move(call.kind, inputs[0].scalar_type());
    if (is_root) call.outputs = outputs[0];
    call.held = call.outputs;
    call.held.push_back(dense(inputs[0]));
    const bool is_row = is_root && are_in_a_row(outputs[0]);
    if (is_root) call.held.push_back(is_row ? outputs[0][0] : row_for(outputs[0]));
    return start(std::move(call), [is_root, is_row, own = is_root ? size_ : 0, root = static_cast<int>(opts.rootRank)](
                                      Group& group, Tensors& held, std::int64_t timeout) {
        const auto& input = held[static_cast<std::size_t>(own)];
        group.gather(piece_of(input), is_root ? held.back().mutable_data_ptr() : nullptr, root, timeout);
        if (is_root && !is_row) take_from_row(held.back(), {held.begin(), held.end() - 2});
    });
}

MusterBackend::WorkPtr MusterBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                              const c10d::ScatterOptions& opts) {
    require(outputs.size() == 1, "scatter takes one output tensor, not ", outputs.size());
    check(outputs[0], "scatter");
    const bool is_root = has_root(opts.rootRank, "scatter");
    require(is_root == (inputs.size() == 1), "scatter: the root, rank ", opts.rootRank,
            ", passes a list of tensors, and no other rank does");
    Call call{c10d::OpType::SCATTER, "muster:scatter", opts.timeout,
              opts.asyncOp,          outputs,          {outputs[0], dense(outputs[0])}};
    call.mark = mark_of_move(call.kind, outputs[0].scalar_type());
    if (is_root) {
        check_list(inputs[0], "scatter");
        for (int rank = 0; rank < size_; ++rank) check_piece(inputs[0], rank, outputs[0], "scatter", "output");
        const at::NoGradGuard no_gradients;
        const bool is_row = are_in_a_row(inputs[0]);
        call.held.push_back(is_row ? inputs[0][0] : row_for(inputs[0]));
        if (!is_row) put_into_row(call.held.back(), inputs[0]);
    }
    return start(std::move(call),
                 [is_root, root = static_cast<int>(opts.rootRank)](Group& group, Tensors& held, std::int64_t timeout) {
                     group.scatter(is_root ? held[2].const_data_ptr() : nullptr, piece_of(held[1]), root, timeout);
                     land(held[0], held[1]);
                 });
}

MusterBackend::WorkPtr MusterBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                    std::vector<std::int64_t>& output_splits,
                                                    std::vector<std::int64_t>& input_splits,
                                                    const c10d::AllToAllOptions& opts) {
    check(output, "all_to_all_single");
    check(input, "all_to_all_single");
    require(output.scalar_type() == input.scalar_type(),
            "all_to_all_single: tensors are not equal in data type: ", output.scalar_type(), " and ",
            input.scalar_type(), "; convert one of them");
    Call call{c10d::OpType::ALLTOALL_BASE,          "muster:all_to_all", opts.timeout, opts.asyncOp, {output},
              {output, dense(output), dense(input)}};
    call.mark = mark_of_move(c10d::OpType::ALLTOALL, input.scalar_type());
    return start(std::move(call), [sent = counts_of_splits(input, input_splits, "input"),
                                   expected = counts_of_splits(output, output_splits, "output"),
                                   type = known_type(input.scalar_type())](Group& group, Tensors& held,
                                                                           std::int64_t timeout) {
        group.all_to_all_uneven(held[2].const_data_ptr(), sent, held[1].mutable_data_ptr(), expected, type, timeout);
        land(held[0], held[1]);
    });
}

MusterBackend::WorkPtr MusterBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
    check_list(outputs, "all_to_all");
    check_list(inputs, "all_to_all");
    require(outputs[0].scalar_type() == inputs[0].scalar_type(), "all_to_all: the lists have different types, ",
            outputs[0].scalar_type(), " and ", inputs[0].scalar_type(), "; convert one of them");
    Call call{c10d::OpType::ALLTOALL, "muster:all_to_all", opts.timeout, opts.asyncOp, outputs, outputs};
    call.mark = mark_of_move(c10d::OpType::ALLTOALL, inputs[0].scalar_type());
    const auto input_row = row_for(inputs);
    {
        const at::NoGradGuard no_gradients;
        put_into_row(input_row, inputs);
    }
    call.held.push_back(input_row);
    call.held.push_back(row_for(outputs));
    return start(std::move(call), [sent = counts_of(inputs), expected = counts_of(outputs),
                                   type = known_type(inputs[0].scalar_type())](Group& group, Tensors& held,
                                                                               std::int64_t timeout) {
        const auto& from = held[held.size() - 2];
        const auto& to = held.back();
        group.all_to_all_uneven(from.const_data_ptr(), sent, to.mutable_data_ptr(), expected, type, timeout);
        take_from_row(to, {held.begin(), held.end() - 2});
    });
}

}  // namespace muster::torch_backend
