// Lets tests detect sanitizers, and makes them shorter under sanitizers and without optimisation.
#ifndef OPKIT_TESTS_SUPPORT_SANITIZERS_HPP_
#define OPKIT_TESTS_SUPPORT_SANITIZERS_HPP_

#if defined(__SANITIZE_THREAD__)
#define OPKIT_TESTS_THREAD_SANITIZER 1
#elif defined(__SANITIZE_ADDRESS__)
#define OPKIT_TESTS_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define OPKIT_TESTS_THREAD_SANITIZER 1
#elif __has_feature(address_sanitizer)
#define OPKIT_TESTS_ADDRESS_SANITIZER 1
#endif
#endif

// Returns the number of rounds for a test of random cases: a tenth under a sanitizer, and if the
// runtime is compiled at -O0. Both make each round ten to forty times slower. Not for cases in
// which threads race.
template <class Number>
constexpr Number Rounds(Number rounds) {
#if defined(OPKIT_TESTS_THREAD_SANITIZER) || defined(OPKIT_TESTS_ADDRESS_SANITIZER) || \
    !(defined(__OPTIMIZE__) || defined(OPKIT_TESTS_OF_OPTIMISED_RUNTIME))
  return rounds / 10;
#else
  return rounds;
#endif
}

#endif  // OPKIT_TESTS_SUPPORT_SANITIZERS_HPP_
