#include "worker_runtime/torch/elements.h"

#include "muster/muster.h"

namespace muster::torch_backend {

namespace {

bool is_complex(Element element) {
    return element == Element::c32 || element == Element::c64 || element == Element::c128;
}

bool is_floating(Element element) {
    return element == Element::f16 || element == Element::bf16 || element == Element::f32 || element == Element::f64;
}

/// The type of the library's elements that `element` is made of.
int type_of(Element element) {
    switch (element) {
        case Element::i8: return MUSTER_I8;
        case Element::i16: return MUSTER_I16;
        case Element::u16: return MUSTER_U16;
        case Element::i32: return MUSTER_I32;
        case Element::u32: return MUSTER_U32;
        case Element::i64: return MUSTER_I64;
        case Element::u64: return MUSTER_U64;
        case Element::bf16: return MUSTER_BF16;
        case Element::f16:
        case Element::c32: return MUSTER_F16;
        case Element::f32:
        case Element::c64: return MUSTER_F32;
        case Element::f64:
        case Element::c128: return MUSTER_F64;
        case Element::u8:
        case Element::boolean: break;
    }
    return MUSTER_U8;
}

int reduce_of(Combine combine) {
    switch (combine) {
        case Combine::sum: return MUSTER_SUM;
        case Combine::avg: return MUSTER_AVG;
        case Combine::product: return MUSTER_PRODUCT;
        case Combine::min: return MUSTER_MIN;
        case Combine::max: return MUSTER_MAX;
        case Combine::band: return MUSTER_BAND;
        case Combine::bor: return MUSTER_BOR;
        case Combine::bxor: return MUSTER_BXOR;
        case Combine::premul_sum: break;
    }
    return MUSTER_PREMUL_SUM;
}

/// True and false are the bytes 1 and 0: a sum of them is a logical or, a product a logical and.
int reduce_of_booleans(Combine combine) {
    if (combine == Combine::sum) return MUSTER_MAX;
    return combine == Combine::product ? MUSTER_MIN : reduce_of(combine);
}

/// What to do instead; empty if there is such a reduction.
std::string reason_against(Element element, Combine combine) {
    const bool is_whole = !is_floating(element) && !is_complex(element);
    switch (combine) {
        case Combine::avg:
        case Combine::premul_sum:
            if (element == Element::boolean)
                return "true and false have no average; convert the tensor first, for example with tensor.float()";
            return is_whole ? "the result is no integer; use SUM, and divide or multiply it as you need" : "";
        case Combine::product:
            return is_complex(element) ? "gather the tensors with all_gather, and multiply them in rank order" : "";
        case Combine::min:
        case Combine::max:
            return is_complex(element)
                       ? "complex numbers have no order; reduce torch.view_as_real(tensor), or its absolute values"
                       : "";
        case Combine::band:
        case Combine::bor:
        case Combine::bxor:
            return is_whole ? ""
                            : "bitwise operations need integers; use tensor.view() of an integer type of the same size";
        case Combine::sum: break;
    }
    return "";
}

}  // namespace

std::optional<Reduction> plan_reduction(Element element, Combine combine, std::string& why) {
    if (const auto reason = reason_against(element, combine); !reason.empty()) {
        why = reason;
        return std::nullopt;
    }
    return Reduction{.combine = combine,
                     .type = type_of(element),
                     .reduce = element == Element::boolean ? reduce_of_booleans(combine) : reduce_of(combine),
                     .parts = is_complex(element) ? std::size_t{2} : std::size_t{1},
                     .is_renamed = is_complex(element) || element == Element::boolean};
}

}  // namespace muster::torch_backend
