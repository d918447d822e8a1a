// Var: a dependency of operations of the engine, with many readers or one writer at a time.
#ifndef OPKIT_ENGINE_DEPENDENCY_VAR_HPP_
#define OPKIT_ENGINE_DEPENDENCY_VAR_HPP_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {
class EngineCore;
class VarState;
}  // namespace detail

// A handle, freely copied. The engine knows no object behind the handle: in a program it may stand
// for a tensor, a file or a random generator. Engine::NewVar makes it and Engine::DeleteVar ends
// it. Using it later, or with another engine, is an Error.
class Var {
 public:
  Var() = default;
  explicit operator bool() const { return state_; }
  friend bool operator==(const Var&, const Var&) = default;

 private:
  friend class detail::EngineCore;
  Var(detail::VarState* state, uint32_t generation, uint32_t engine)
      : state_(state), generation_(generation), engine_(engine) {}

  detail::VarState* state_ = nullptr;
  uint32_t generation_ = 0;
  uint32_t engine_ = 0;  // checked before `state_`, which dies with its engine
};

// The Vars of one call, which it does not own: `{a, b}`, `{}` or a std::vector<Var>.
struct VarList : std::span<const Var> {
  VarList() = default;
  // The list lives as long as the call that it is written in.
  VarList(std::initializer_list<Var> vars) : span(std::data(vars), vars.size()) {}
  VarList(const std::vector<Var>& vars) : span(vars) {}
};

}}  // namespace opkit

#endif  // OPKIT_ENGINE_DEPENDENCY_VAR_HPP_
