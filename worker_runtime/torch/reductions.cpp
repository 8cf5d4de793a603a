// The collectives that reduce.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "worker_runtime/torch/backend.h"
#include "worker_runtime/torch/marks.h"

namespace muster::torch_backend {

namespace {

std::optional<Element> element_of(at::ScalarType type) {
    switch (type) {
        case at::kChar: return Element::i8;
        case at::kByte: return Element::u8;
        case at::kShort: return Element::i16;
        case at::kUInt16: return Element::u16;
        case at::kInt: return Element::i32;
        case at::kUInt32: return Element::u32;
        case at::kLong: return Element::i64;
        case at::kUInt64: return Element::u64;
        case at::kHalf: return Element::f16;
        case at::kBFloat16: return Element::bf16;
        case at::kFloat: return Element::f32;
        case at::kDouble: return Element::f64;
        case at::kComplexHalf: return Element::c32;
        case at::kComplexFloat: return Element::c64;
        case at::kComplexDouble: return Element::c128;
        case at::kBool: return Element::boolean;
        default: return std::nullopt;
    }
}

/// Of an all_reduce, reduce or reduce_scatter: the library's signature says all of those of its own types.
std::uint32_t mark_of_reduction(c10d::OpType kind, at::ScalarType type, const Reduction& reduction) {
    if (!reduction.is_renamed) return 0;
    return mark_of({.kind = kind, .type = type, .combine = static_cast<int>(reduction.combine)});
}

double factor_of(const c10d::ReduceOp& op) {
    // The name in torch 2.11; later ones have it, too.
    const auto* const supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    TORCH_CHECK(supplement != nullptr,
                "PREMUL_SUM without a factor; make it with "
                "torch.distributed._make_nccl_premul_sum(factor)");
    return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

/// The ranks compare sparse tensors by heads of one length, so that those with different numbers of dimensions can be
/// told apart: nonzero elements, sparse dimensions, all dimensions, their sizes.
constexpr std::int64_t sparse_dims_max = 64;

std::vector<std::int64_t> head_of(const at::Tensor& sparse) {
    std::vector<std::int64_t> head{sparse._nnz(), sparse.sparse_dim(), sparse.dim()};
    head.insert(head.end(), sparse.sizes().begin(), sparse.sizes().end());
    head.resize(3 + sparse_dims_max);
    return head;
}

std::string shape_of(const at::Tensor& head) {
    const auto* const words = head.const_data_ptr<std::int64_t>();
    return c10::str(at::IntArrayRef(words + 3, static_cast<std::size_t>(words[2])), " with ", words[1],
                    words[1] == 1 ? " sparse dimension" : " sparse dimensions");
}

/// Sums the ranks' sparse tensors: all have all of them, and add those with equal indices in rank order.
void reduce_sparse(Group& group, const at::Tensor& tensor, std::int64_t timeout) {
    const auto own = tensor.coalesce();
    const auto ranks = static_cast<std::int64_t>(group.size());
    const auto count = own._nnz();
    auto head = head_of(own);
    auto heads = at::empty({ranks, static_cast<std::int64_t>(head.size())}, at::kLong);
    group.all_gather({.data = head.data(), .count = head.size(), .type = MUSTER_I64, .element_bytes = 8},
                     heads.mutable_data_ptr(), timeout);
    const auto shapes = heads.narrow(1, 1, 2 + sparse_dims_max);
    for (std::int64_t rank = 1; rank < ranks; ++rank)
        TORCH_CHECK(shapes[rank].equal(shapes[0]), "all_reduce of sparse tensors: rank 0 passes the shape ",
                    shape_of(heads[0]), ", and rank ", rank, " ", shape_of(heads[rank]),
                    "; pass one shape on all ranks");
    const auto counts = heads.select(1, 0);
    const auto most = counts.max().item<std::int64_t>();
    if (most == 0) return;
    const auto gather = [&](const at::Tensor& part) {
        auto sizes = part.sizes().vec();
        sizes[0] = most;
        auto padded = at::zeros(sizes, part.options());
        padded.narrow(0, 0, count).copy_(part);
        sizes[0] = ranks * most;
        auto all = at::empty(sizes, part.options());
        group.all_gather({.data = padded.mutable_data_ptr(), .count = padded.nbytes()}, all.mutable_data_ptr(),
                         timeout);
        std::vector<at::Tensor> pieces;
        for (std::int64_t rank = 0; rank < ranks; ++rank)
            pieces.push_back(all.narrow(0, rank * most, counts[rank].item<std::int64_t>()));
        return at::cat(pieces);
    };
    const auto indices = gather(own.indices().t().contiguous());
    const auto values = gather(own.values().contiguous());
    const auto sum = at::sparse_coo_tensor(indices.t(), values, tensor.sizes(), tensor.options()).coalesce();
    tensor.copy_(sum);
}

}  // namespace

Reduction MusterBackend::reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
    const auto kind = static_cast<std::size_t>(op.op_);
    require(kind < std::size(combine_names), "an unknown reduction, number ", kind);
    std::string why = "tensors of this type only move; convert the tensor first, for example with tensor.float()";
    std::optional<Reduction> plan;
    if (const auto element = element_of(tensor.scalar_type()))
        plan = plan_reduction(*element, static_cast<Combine>(kind), why);
    require(plan.has_value(), combine_names[kind], " of ", tensor.scalar_type(), " is not supported: ", why);
    if (plan->combine == Combine::premul_sum) plan->factor = factor_of(op);
    return *plan;
}

/// Each tensor is replaced by the reduction over all ranks.
MusterBackend::WorkPtr MusterBackend::reduce_each(Call call, const Tensors& tensors, const c10d::ReduceOp& op) {
    std::vector<Reduction> reductions;
    for (const auto& tensor : tensors) {
        check(tensor, "all_reduce");
        reductions.push_back(reduction_of(tensor, op));
        call.held.insert(call.held.end(), {tensor, dense(tensor)});
    }
    call.outputs = tensors;
    return start(std::move(call), [reductions](Group& group, Tensors& held, std::int64_t timeout) {
        for (std::size_t i = 0; i < reductions.size(); ++i) {
            const auto& twin = held[2 * i + 1];
            const CollectivesMark mark(mark_of_reduction(c10d::OpType::ALLREDUCE, twin.scalar_type(), reductions[i]));
            group.all_reduce(twin.mutable_data_ptr(), static_cast<std::size_t>(twin.numel()), reductions[i], timeout);
            land(held[2 * i], twin);
        }
    });
}

MusterBackend::WorkPtr MusterBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
    require(tensors.size() == 1, "all_reduce takes one tensor, not ", tensors.size());
    if (tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
    return reduce_each({c10d::OpType::ALLREDUCE, "muster:all_reduce", opts.timeout, opts.asyncOp}, tensors,
                       opts.reduceOp);
}

MusterBackend::WorkPtr MusterBackend::allreduce_coalesced(Tensors& tensors,
                                                          const c10d::AllreduceCoalescedOptions& opts) {
    return reduce_each({c10d::OpType::ALLREDUCE_COALESCED, "muster:all_reduce", opts.timeout, opts.asyncOp}, tensors,
                       opts.reduceOp);
}

MusterBackend::WorkPtr MusterBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
    require(tensors.size() == 1 && tensors[0].is_sparse() && tensors[0].device().is_cpu(),
            "all_reduce of sparse tensors takes one sparse COO tensor on the CPU");
    require(opts.reduceOp.op_ == c10d::ReduceOp::SUM, combine_names[static_cast<std::size_t>(opts.reduceOp.op_)],
            " of a sparse tensor is not supported: only SUM is; call tensor.to_dense() first");
    require(tensors[0].dim() <= sparse_dims_max, "all_reduce of a sparse tensor: it has ", tensors[0].dim(),
            " dimensions, and at most ", sparse_dims_max, " are supported; reshape it");
    Call call{c10d::OpType::_ALLREDUCE_SPARSE, "muster:all_reduce", opts.timeout, opts.asyncOp, tensors, tensors};
    call.mark = mark_of({call.kind, tensors[0].scalar_type()});
    return start(std::move(call),
                 [](Group& group, Tensors& held, std::int64_t timeout) { reduce_sparse(group, held[0], timeout); });
}

/// Only the root's tensor changes.
MusterBackend::WorkPtr MusterBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
    require(tensors.size() == 1, "reduce takes one tensor, not ", tensors.size());
    check(tensors[0], "reduce");
    const bool is_root = has_root(opts.rootRank, "reduce");
    const auto reduction = reduction_of(tensors[0], opts.reduceOp);
    const auto twin = dense(tensors[0]);
    Call call{c10d::OpType::REDUCE, "muster:reduce", opts.timeout, opts.asyncOp, tensors, {tensors[0], twin}};
    call.mark = mark_of_reduction(call.kind, twin.scalar_type(), reduction);
    return start(std::move(call), [reduction, is_root, root = static_cast<int>(opts.rootRank)](
                                      Group& group, Tensors& held, std::int64_t timeout) {
        group.reduce(held[1].mutable_data_ptr(), static_cast<std::size_t>(held[1].numel()), reduction, root, timeout);
        if (is_root) land(held[0], held[1]);
    });
}

MusterBackend::WorkPtr MusterBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                     const c10d::ReduceScatterOptions& opts) {
    require(inputs.size() == 1 && outputs.size() == 1, "reduce_scatter takes one list and one output tensor");
    check(outputs[0], "reduce_scatter");
    check_list(inputs[0], "reduce_scatter");
    const auto& list = inputs[0];
    const auto& own = list[static_cast<std::size_t>(rank_)];
    check_piece(list, rank_, outputs[0], "reduce_scatter", "output");
    Call call{c10d::OpType::REDUCE_SCATTER,   "muster:reduce_scatter", opts.timeout, opts.asyncOp, outputs,
              {outputs[0], dense(outputs[0])}};
    const bool is_even =
        std::all_of(list.begin(), list.end(), [&](const auto& one) { return one.numel() == own.numel(); });
    Tensors flat;
    for (const auto& tensor : list) flat.push_back(dense(tensor).reshape({-1}));
    call.held.push_back(at::cat(flat));
    std::int64_t before = 0;
    for (int rank = 0; rank < rank_; ++rank) before += flat[static_cast<std::size_t>(rank)].numel();
    const auto reduction = reduction_of(own, opts.reduceOp);
    call.mark = mark_of_reduction(call.kind, own.scalar_type(), reduction);
    return start(std::move(call), [reduction, is_even, before](Group& group, Tensors& held, std::int64_t timeout) {
        const auto& output = held[1];
        auto* const all = held[2].mutable_data_ptr();
        const auto count = static_cast<std::size_t>(output.numel());
        if (is_even) {
            group.reduce_scatter(all, output.mutable_data_ptr(), count, reduction, timeout);
        } else {
            group.all_reduce(all, static_cast<std::size_t>(held[2].numel()), reduction, timeout);
            output.copy_(held[2].narrow(0, before, output.numel()).view(output.sizes()));
        }
        land(held[0], output);
    });
}

MusterBackend::WorkPtr MusterBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::ReduceScatterOptions& opts) {
    Tensors outputs{output};
    Tensors inputs{input};
    return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

MusterBackend::WorkPtr MusterBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                      const c10d::ReduceScatterOptions& opts) {
    Call call{c10d::OpType::_REDUCE_SCATTER_BASE, "muster:_reduce_scatter_base", opts.timeout, opts.asyncOp, outputs};
    std::vector<Reduction> reductions;
    for (const auto& input : inputs) reductions.push_back(reduction_of(input, opts.reduceOp));
    hold_pairs(call, outputs, inputs, "reduce_scatter_tensor", false);
    return start(std::move(call), [reductions](Group& group, Tensors& held, std::int64_t timeout) {
        for (std::size_t i = 0; i < reductions.size(); ++i) {
            const auto& twin = held[3 * i + 1];
            const CollectivesMark mark(
                mark_of_reduction(c10d::OpType::REDUCE_SCATTER, twin.scalar_type(), reductions[i]));
            group.reduce_scatter(held[3 * i + 2].const_data_ptr(), twin.mutable_data_ptr(),
                                 static_cast<std::size_t>(twin.numel()), reductions[i], timeout);
            land(held[3 * i], twin);
        }
    });
}

}  // namespace muster::torch_backend
