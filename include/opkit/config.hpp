// Configuration macros of the toolkit, and its own names for compiler attributes. The lowest
// header: it includes only the version (row 0).
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
// OPKIT_COMPILED, headers hold only declarations, templates and hot functions. The other
// definitions stand in impl/*.ipp and are compiled once: by src/*.cpp, or by one unit of the
// program that defines OPKIT_IMPLEMENTATION. That unit includes the widest umbrella that the
// program uses, such as opkit/all.hpp.
#if defined(OPKIT_IMPLEMENTATION) && !defined(OPKIT_COMPILED)
#define OPKIT_COMPILED
#endif
#ifdef OPKIT_COMPILED
#define OPKIT_INLINE
#else
#define OPKIT_INLINE inline
#endif
// A header with an .ipp ends with `#ifdef OPKIT_DEFINITIONS` and the `#include` of that .ipp.
#if !defined(OPKIT_COMPILED) || defined(OPKIT_IMPLEMENTATION)
#define OPKIT_DEFINITIONS
#endif

// Marks a lambda that ParallelFor runs on the device. It is `__device__` alone under nvcc: a
// `__host__ __device__` lambda runs 8 to 10 times slower on the host, so CPU kernels are compiled
// in .cc files.
#ifdef __CUDACC__
#define OPKIT_DEVICE_COMPILER  // the compiler also compiles device kernels
#define OPKIT_DEVICE __device__
#define OPKIT_HOST_DEVICE __host__ __device__
#else
#define OPKIT_DEVICE
#define OPKIT_HOST_DEVICE
#endif

#ifdef __CUDA_ARCH__
#define OPKIT_DEVICE_PASS  // this pass generates device code
#if __CUDA_ARCH__ >= 800
#define OPKIT_DEVICE_BFLOAT16  // for devices with instructions for bfloat16
#endif
#endif

// Makes a symbol visible outside a shared object that is compiled with -fvisibility=hidden.
// Exception types need it, so that another shared object can catch them.
#define OPKIT_VISIBLE __attribute__((visibility("default")))

// Gives each program and each shared library its own copy: the dynamic linker cannot merge hidden
// symbols.
#define OPKIT_IMAGE_LOCAL __attribute__((visibility("hidden")))

// Keeps one copy of a function that the compiler would inline at many places.
#define OPKIT_NOINLINE __attribute__((noinline))

// Marks error paths, so that the compiler places them apart from the caller's hot instructions.
#define OPKIT_COLD __attribute__((cold))

#define OPKIT_CONCAT_(a, b) a##b
#define OPKIT_CONCAT(a, b) OPKIT_CONCAT_(a, b)
#define OPKIT_UNIQUE(prefix) OPKIT_CONCAT(prefix, __COUNTER__)

// First line of a `macro` that belongs at namespace scope; elsewhere a compile error. In a function
// the static_assert prints its sentence, in a class the extern declaration shows its name. Has no
// effect under nvcc, which accepts neither declaration in an unnamed namespace.
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
