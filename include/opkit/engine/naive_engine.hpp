// NaiveEngine: the engine without threads, by a name of its own. Any Engine of a program becomes
// one where the environment has OPKIT_ENGINE=naive.
#ifndef OPKIT_ENGINE_NAIVE_ENGINE_HPP_
#define OPKIT_ENGINE_NAIVE_ENGINE_HPP_

#include "opkit/engine/engine.hpp"

namespace opkit::inline OPKIT_ABI {

class NaiveEngine : public Engine {
 public:
  NaiveEngine() : Engine({.threads = 0, .naive = true}) {}
};

}  // namespace opkit

#endif  // OPKIT_ENGINE_NAIVE_ENGINE_HPP_
