// What tests do otherwise under ThreadSanitizer.
#ifndef OPKIT_TESTS_THREAD_SANITIZER_HPP_
#define OPKIT_TESTS_THREAD_SANITIZER_HPP_

#if defined(__SANITIZE_THREAD__)
#define OPKIT_TESTS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define OPKIT_TESTS_THREAD_SANITIZER 1
#endif
#endif

// How often a test of random cases goes round that starts no thread: a tenth under
// ThreadSanitizer, which makes each round twenty times slower and has nothing to find in it.
template <class Number>
constexpr Number Rounds(Number rounds) {
#ifdef OPKIT_TESTS_THREAD_SANITIZER
  return rounds / 10;
#else
  return rounds;
#endif
}

#endif  // OPKIT_TESTS_THREAD_SANITIZER_HPP_
