// How much a long test does. Under the thread sanitizer a tenth shows as much: it looks at how threads meet, not at
// what they compute.
#pragma once

namespace muster::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool under_thread_sanitizer = true;
#else
inline constexpr bool under_thread_sanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool under_address_sanitizer = true;
#else
inline constexpr bool under_address_sanitizer = false;
#endif
inline constexpr bool under_sanitizer = under_thread_sanitizer || under_address_sanitizer;

/// `usual`, or under the thread sanitizer `less`.
template <class T>
constexpr T effort(T usual, T less) {
    return under_thread_sanitizer ? less : usual;
}

/// Of this many random cases, which compare values. Under a sanitizer a tenth: it looks at how the same code treats
/// memory.
template <class T>
constexpr T random_cases(T usual) {
    return under_sanitizer ? usual / 10 : usual;
}

}  // namespace muster::test
