// The registry of passes by name: passes of REGISTER_PASS in a program, and of loaded libraries.
#ifndef OPKIT_GRAPH_PASSES_NAMED_PASS_HPP_
#define OPKIT_GRAPH_PASSES_NAMED_PASS_HPP_

#include "opkit/graph/passes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Options of a pass, by name.
using PassArguments = std::vector<std::pair<std::string, std::string>>;

// A registered pass. Immutable after registration. Several threads may call Run.
class NamedPass : public detail::RefCounted {
 public:
  virtual const std::string& name() const = 0;
  // Runs the pass. The graph may have unregistered operators.
  virtual Graph Run(const Graph& graph, const PassArguments& options) const = 0;
  // FILE:LINE of the definition, and the name of its library; empty for a pass of the program.
  virtual std::string place() const { return {}; }
  virtual std::string library() const { return {}; }
  // Returns an object that keeps the library loaded while it exists; null for the program.
  virtual detail::IntrusivePtr<detail::RefCounted> use() const { return {}; }
};

// Returns the names of all registered passes in alphabetical order.
OPKIT_IMAGE_LOCAL std::vector<std::string> RegisteredPasses();
// Returns the pass for use in a PassList, which keeps it alive:
// passes.Add("mine", FindPass("mine")). Throws kNotFound, with the nearest name, for an unknown
// name, and kAlreadyExists for a name that is registered at two places.
OPKIT_IMAGE_LOCAL PassList::Pass FindPass(std::string_view name, PassArguments options = {});
// Runs the pass and checks the graph that it returns; an Error names the pass. The check allows
// unregistered operators.
//   Graph smaller = RunPass(graph, "drop_casts", {{"to", "float32"}});
OPKIT_IMAGE_LOCAL Graph RunPass(const Graph& graph, std::string_view name,
                                PassArguments options = {});

namespace detail {

OPKIT_IMAGE_LOCAL bool RegisterPass(IntrusivePtr<const NamedPass> pass, const char* file,
                                    int line) noexcept;
OPKIT_IMAGE_LOCAL bool UnregisterPass(const NamedPass& pass) noexcept;
OPKIT_IMAGE_LOCAL IntrusivePtr<const NamedPass> GetPass(std::string_view name);

// The pass of a REGISTER_PASS.
class PassOfFunction final : public NamedPass {
 public:
  PassOfFunction(const char* name, const char* file, int line)
      : name_(name), place_(StrCat(file, ":", line)) {}
  const std::string& name() const override { return name_; }
  OPKIT_INLINE Graph Run(const Graph& graph, const PassArguments& options) const override;
  std::string place() const override { return place_; }

  mutable UniqueFunction<Graph(const Graph&, const PassArguments&)> body;

 private:
  const std::string name_, place_;
};

}  // namespace detail

// Sets the body of a pass; REGISTER_PASS makes the builder. The body takes the graph, and the
// options if it needs them. It returns another graph with the same inputs and outputs. Several
// threads may call the body.
//
//   Graph DropIdentities(const Graph& graph) { Graph out = graph; …; return out; }
//   REGISTER_PASS(drop_identities).setBody(DropIdentities);
class PassBuilder {
 public:
  PassBuilder(const char* name, const char* file, int line) noexcept
      : pass_(detail::MakeIntrusive<detail::PassOfFunction>(name, file, line)) {
    detail::RegisterPass(pass_, file, line);
  }
  template <class F>
  PassBuilder& setBody(F f) {
    constexpr bool kTakesOptions =
        std::is_invocable_r_v<Graph, F&, const Graph&, const PassArguments&>;
    static_assert(kTakesOptions || std::is_invocable_r_v<Graph, F&, const Graph&>,
                  "setBody(f): write Graph f(const Graph& graph), or Graph f(const Graph& graph, "
                  "const PassArguments& options)");
    if constexpr (kTakesOptions)
      pass_->body = std::move(f);
    else
      pass_->body = [f = std::move(f)](const Graph& graph, const PassArguments&) mutable {
        return f(graph);
      };
    return *this;
  }

 private:
  detail::IntrusivePtr<detail::PassOfFunction> pass_;
};

}}  // namespace opkit

// Registers a pass: REGISTER_PASS(my_pass).setBody(f); at namespace scope, in a program or in a
// library that includes opkit/partition.hpp.
#undef OPKIT_REGISTER_PASS
#define OPKIT_REGISTER_PASS(name)                                                \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_PASS);                                       \
  [[maybe_unused]] static const ::opkit::PassBuilder OPKIT_UNIQUE(opkit_pass_) = \
      ::opkit::PassBuilder(#name, __FILE__, __LINE__)

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/named_pass.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_NAMED_PASS_HPP_
