// The toolkit's switches, and the abilities of the compiler in use under the toolkit's own names.
// Row 0: includes nothing but the version.
#ifndef OPKIT_CONFIG_HPP_
#define OPKIT_CONFIG_HPP_

#include "opkit/version.hpp"

#if defined(__clang__) ? __clang_major__ < 16 : defined(__GNUC__) && __GNUC__ < 12
#error "opkit needs a newer compiler: g++ 12 or clang 16 and up"
#endif
#if !defined(__cplusplus) || __cplusplus < 202002L
#error "opkit needs C++20: add -std=c++20 (g++ 12 or clang 16 and up) to the compiler's options"
#endif
#ifndef __cpp_exceptions
#error "opkit needs exceptions: remove -fno-exceptions from the compiler's options"
#endif
#ifndef __cpp_rtti
#error "opkit needs run-time types: remove -fno-rtti from the compiler's options"
#endif

// The two ways to consume the toolkit. Header-only is the default: every definition is inline. With
// OPKIT_COMPILED the headers only declare what is not hot, and the definitions, which stand in the
// impl/*.ipp beside them, are compiled once: by src/*.cpp, or by the one unit of the program that
// defines OPKIT_IMPLEMENTATION before it includes the widest umbrella that the program uses, such
// as opkit/all.hpp.
#if defined(OPKIT_IMPLEMENTATION) && !defined(OPKIT_COMPILED)
#define OPKIT_COMPILED
#endif
#ifdef OPKIT_COMPILED
#define OPKIT_INLINE
#else
#define OPKIT_INLINE inline
#endif
// A header ends with `#ifdef OPKIT_DEFINITIONS`, `#include` of its .ipp.
#if !defined(OPKIT_COMPILED) || defined(OPKIT_IMPLEMENTATION)
#define OPKIT_DEFINITIONS
#endif

// Marks the lambda handed to ParallelFor. `__device__` alone under nvcc: a `__host__ __device__`
// lambda runs 8 to 10 times slower on the host, so CPU kernels are compiled in .cc files.
#ifdef __CUDACC__
#define OPKIT_DEVICE_COMPILER  // one that compiles kernels of a device
#define OPKIT_DEVICE __device__
#define OPKIT_HOST_DEVICE __host__ __device__
#else
#define OPKIT_DEVICE
#define OPKIT_HOST_DEVICE
#endif

#ifdef __CUDA_ARCH__
#define OPKIT_DEVICE_PASS  // this pass of the device compiler makes the device's code
#endif

// Visible from a shared object compiled with -fvisibility=hidden: types that cross by exception.
#define OPKIT_EXPORT __attribute__((visibility("default")))

// One in each program or shared library, whatever a dynamic linker would make of it.
#define OPKIT_IMAGE_LOCAL __attribute__((visibility("hidden")))

// Keeps one copy of a body that many places would take in.
#define OPKIT_NOINLINE __attribute__((noinline))

// Keeps error paths out of the way of the caller's instructions.
#define OPKIT_COLD __attribute__((cold))

#define OPKIT_CONCAT_(a, b) a##b
#define OPKIT_CONCAT(a, b) OPKIT_CONCAT_(a, b)
#define OPKIT_UNIQUE(prefix) OPKIT_CONCAT(prefix, __COUNTER__)

// Begins `macro`, which is for namespace scope, with declarations that are errors elsewhere: the
// sentence of one is printed in a function, the name of the other in a class. nvcc takes neither in
// an unnamed namespace.
#ifdef OPKIT_DEVICE_COMPILER
#define OPKIT_AT_NAMESPACE_SCOPE(macro) static_assert(true)
#else
#define OPKIT_AT_NAMESPACE_SCOPE(macro)                                               \
  static_assert(__builtin_FUNCTION()[0] == '\0',                                      \
                #macro " goes at namespace scope, outside of functions and classes"); \
  [[maybe_unused]] extern struct macro##_goes_at_namespace_scope_not_in_a_class       \
      macro##_goes_at_namespace_scope_not_in_a_class
#endif

#endif  // OPKIT_CONFIG_HPP_
