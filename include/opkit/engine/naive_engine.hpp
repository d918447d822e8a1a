// NaiveEngine: an Engine without threads, for debugging. Every Engine of a program is naive if the
// environment has OPKIT_ENGINE=naive.
#ifndef OPKIT_ENGINE_NAIVE_ENGINE_HPP_
#define OPKIT_ENGINE_NAIVE_ENGINE_HPP_

#include "opkit/engine/engine.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class NaiveEngine : public Engine {
 public:
  NaiveEngine() : Engine({.threads = 0, .naive = true}) {}
};

}}  // namespace opkit

#endif  // OPKIT_ENGINE_NAIVE_ENGINE_HPP_
