// Passes by name: those of REGISTER_PASS in a program, and those of loaded libraries.
#ifndef OPKIT_GRAPH_PASSES_NAMED_PASS_HPP_
#define OPKIT_GRAPH_PASSES_NAMED_PASS_HPP_

#include "opkit/graph/passes.hpp"

namespace opkit::inline OPKIT_ABI {

// Options of a pass, by name.
using PassArguments = std::vector<std::pair<std::string, std::string>>;

// Immutable once registered. Run may be called on several threads.
class NamedPass : public detail::RefCounted {
 public:
  virtual const std::string& name() const = 0;
  // The operators of the graph need not be registered.
  virtual Graph Run(const Graph& graph, const PassArguments& options) const = 0;
  // Where it is defined, FILE:LINE, and the library that it came from, empty for the program.
  virtual std::string place() const { return {}; }
  virtual std::string library() const { return {}; }
  // Holds that library for as long as it lives; null for the program.
  virtual detail::IntrusivePtr<detail::RefCounted> use() const { return {}; }
};

// In alphabetical order.
OPKIT_IMAGE_LOCAL std::vector<std::string> RegisteredPasses();
// The pass as a member of a PassList, which keeps it: passes.Add("mine", FindPass("mine")). Errors:
// kNotFound with the nearest name, kAlreadyExists for a name that is registered at two places.
OPKIT_IMAGE_LOCAL PassList::Pass FindPass(std::string_view name, PassArguments options = {});
// The graph after the pass, checked whole: an Error names the pass, and nothing has changed. Nodes
// of operators that nobody registered are left alone by the check.
//   Graph smaller = RunPass(graph, "drop_casts", {{"to", "float32"}});
OPKIT_IMAGE_LOCAL Graph RunPass(const Graph& graph, std::string_view name,
                                PassArguments options = {});

namespace detail {

OPKIT_IMAGE_LOCAL bool RegisterPass(IntrusivePtr<const NamedPass> pass, const char* file,
                                    int line) noexcept;
OPKIT_IMAGE_LOCAL bool UnregisterPass(const NamedPass& pass) noexcept;
OPKIT_IMAGE_LOCAL IntrusivePtr<const NamedPass> GetPass(std::string_view name);

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

// Fills in a pass; made by REGISTER_PASS. The body takes the graph, const, and if it likes the
// options, and returns another graph with the same inputs and outputs. It may be called on several
// threads.
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

}  // namespace opkit

// REGISTER_PASS(my_pass).setBody(f); at namespace scope, in a program or in a library that includes
// opkit/partition.hpp.
#undef OPKIT_REGISTER_PASS
#define OPKIT_REGISTER_PASS(name)                                                \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_PASS);                                       \
  [[maybe_unused]] static const ::opkit::PassBuilder OPKIT_UNIQUE(opkit_pass_) = \
      ::opkit::PassBuilder(#name, __FILE__, __LINE__)

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/named_pass.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_NAMED_PASS_HPP_
