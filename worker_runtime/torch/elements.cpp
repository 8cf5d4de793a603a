#include "worker_runtime/torch/elements.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <complex>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "muster/muster.h"

namespace muster::torch_backend {

namespace {

bool is_complex(Element element) {
    return element == Element::c32 || element == Element::c64 || element == Element::c128;
}

bool is_floating(Element element) {
    return element == Element::f16 || element == Element::bf16 || element == Element::f32 || element == Element::f64;
}

/// The library's type whose elements have the same bytes and, if `sums`, the same sums modulo their width.
std::optional<int> native_type(Element element, bool sums) {
    switch (element) {
        case Element::f32: return MUSTER_F32;
        case Element::f64: return MUSTER_F64;
        case Element::f16: return MUSTER_F16;
        case Element::bf16: return MUSTER_BF16;
        case Element::i32: return MUSTER_I32;
        case Element::i64: return MUSTER_I64;
        case Element::u8: return MUSTER_U8;
        case Element::i8: return sums ? std::optional(MUSTER_U8) : std::nullopt;
        case Element::u32: return sums ? std::optional(MUSTER_I32) : std::nullopt;
        case Element::u64: return sums ? std::optional(MUSTER_I64) : std::nullopt;
        default: return std::nullopt;
    }
}

void make_native(Reduction& reduction, int type, int reduce, std::size_t per_element = 1) {
    reduction.is_native = true;
    reduction.type = type;
    reduction.reduce = reduce;
    reduction.native_per_element = per_element;
}

int complex_part(Element element) {
    return element == Element::c32 ? MUSTER_F16 : element == Element::c64 ? MUSTER_F32 : MUSTER_F64;
}

/// True and false are 1 and 0, so each reduction of them is one of bytes.
bool plan_boolean(Reduction& reduction, std::string& why) {
    switch (reduction.combine) {
        case Combine::sum:
        case Combine::max:
        case Combine::bor: make_native(reduction, MUSTER_U8, MUSTER_MAX); return true;
        case Combine::product:
        case Combine::min:
        case Combine::band: make_native(reduction, MUSTER_U8, MUSTER_MIN); return true;
        case Combine::bxor: return true;
        default: why = "true and false have no average; convert the tensor first, for example with tensor.float()";
    }
    return false;
}

/// The arithmetic type of an element, and the type in which it is accumulated.
template <class Stored, class Work = Stored>
struct Kind {
    using stored = Stored;
    using work = Work;
};

template <class Function>
void with_kind(Element element, Function&& function) {
    switch (element) {
        case Element::i8: return function(Kind<std::int8_t>());
        case Element::u8:
        case Element::boolean: return function(Kind<std::uint8_t>());
        case Element::i16: return function(Kind<std::int16_t>());
        case Element::u16: return function(Kind<std::uint16_t>());
        case Element::i32: return function(Kind<std::int32_t>());
        case Element::u32: return function(Kind<std::uint32_t>());
        case Element::i64: return function(Kind<std::int64_t>());
        case Element::u64: return function(Kind<std::uint64_t>());
        case Element::f16: return function(Kind<c10::Half, float>());
        case Element::bf16: return function(Kind<c10::BFloat16, float>());
        case Element::f32: return function(Kind<float>());
        case Element::f64: return function(Kind<double>());
        case Element::c64: return function(Kind<std::complex<float>>());
        case Element::c128: return function(Kind<std::complex<double>>());
        case Element::c32: return;  // plan_reduction() gives only sums, which are native
    }
}

template <class T>
struct RealPart {
    using type = T;
};
template <class T>
struct RealPart<std::complex<T>> {
    using type = T;
};
template <class T>
using real_part = typename RealPart<T>::type;

/// Integers wrap, as in the library.
template <class T>
T combined(T a, T b, Combine combine) {
    if constexpr (std::is_integral_v<T>) {
        using Wide = std::make_unsigned_t<std::conditional_t<(sizeof(T) < 4), std::uint32_t, T>>;
        switch (combine) {
            case Combine::sum: return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
            case Combine::product: return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
            case Combine::min: return std::min(a, b);
            case Combine::max: return std::max(a, b);
            case Combine::band: return static_cast<T>(a & b);
            case Combine::bor: return static_cast<T>(a | b);
            default: return static_cast<T>(a ^ b);
        }
    } else {
        return combine == Combine::product ? a * b : a + b;
    }
}

}  // namespace

std::optional<Reduction> plan_reduction(Element element, Combine combine, std::string& why) {
    Reduction reduction{.element = element, .combine = combine};
    constexpr std::size_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 4, 8, 16, 1};
    reduction.element_bytes = sizes[static_cast<std::size_t>(element)];
    if (element == Element::boolean) return plan_boolean(reduction, why) ? std::optional(reduction) : std::nullopt;
    const bool sums = combine == Combine::sum || combine == Combine::premul_sum;
    switch (combine) {
        case Combine::sum:
        case Combine::avg:
        case Combine::premul_sum:
            if (!sums || combine == Combine::premul_sum) {
                if (!is_floating(element) && !is_complex(element)) {
                    why = "the result is no integer; use SUM, and divide or multiply it as you need";
                    return std::nullopt;
                }
            }
            if (is_complex(element))
                make_native(reduction, complex_part(element), sums ? MUSTER_SUM : MUSTER_AVG, 2);
            else if (const auto type = native_type(element, sums))
                make_native(reduction, *type, sums ? MUSTER_SUM : MUSTER_AVG);
            return reduction;
        case Combine::product:
            if (element != Element::c32) return reduction;
            why = "convert the tensor first, for example with tensor.to(torch.complex64)";
            return std::nullopt;
        case Combine::min:
        case Combine::max:
            if (is_complex(element)) {
                why = "complex numbers have no order; reduce torch.view_as_real(tensor), or its absolute values";
                return std::nullopt;
            }
            if (const auto type = native_type(element, false))
                make_native(reduction, *type, combine == Combine::min ? MUSTER_MIN : MUSTER_MAX);
            return reduction;
        case Combine::band:
        case Combine::bor:
        case Combine::bxor:
            if (!is_floating(element) && !is_complex(element)) return reduction;
            why = "bitwise operations need integers; use tensor.view() of an integer type of the same size";
            return std::nullopt;
    }
    why = "it is not known";
    return std::nullopt;
}

void scale(void* data, std::size_t count, const Reduction& reduction) {
    if (reduction.element == Element::c32) {
        auto* const parts = static_cast<c10::Half*>(data);
        for (std::size_t i = 0; i < 2 * count; ++i)
            parts[i] = static_cast<c10::Half>(static_cast<float>(parts[i]) * static_cast<float>(reduction.factor));
        return;
    }
    with_kind(reduction.element, [&](auto kind) {
        using Stored = typename decltype(kind)::stored;
        using Work = typename decltype(kind)::work;
        if constexpr (!std::is_integral_v<Work>) {
            auto* const elements = static_cast<Stored*>(data);
            const Work factor{static_cast<real_part<Work>>(reduction.factor)};
            for (std::size_t i = 0; i < count; ++i)
                elements[i] = static_cast<Stored>(static_cast<Work>(elements[i]) * factor);
        }
    });
}

void reduce_pieces(const void* pieces, std::size_t stride_bytes, int piece_count, void* output, std::size_t count,
                   const Reduction& reduction) {
    with_kind(reduction.element, [&](auto kind) {
        using Stored = typename decltype(kind)::stored;
        using Work = typename decltype(kind)::work;
        const auto piece = [&](int number) {
            return reinterpret_cast<const Stored*>(static_cast<const std::byte*>(pieces) +
                                                   static_cast<std::size_t>(number) * stride_bytes);
        };
        std::vector<Work> sums(count);
        for (std::size_t i = 0; i < count; ++i) sums[i] = static_cast<Work>(piece(0)[i]);
        for (int number = 1; number < piece_count; ++number) {
            const Stored* const next = piece(number);
            for (std::size_t i = 0; i < count; ++i)
                sums[i] = combined<Work>(sums[i], static_cast<Work>(next[i]), reduction.combine);
        }
        auto* const to = static_cast<Stored*>(output);
        for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<Stored>(sums[i]);
    });
}

}  // namespace muster::torch_backend
