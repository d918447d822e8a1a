// The definitions of the registry of passes.
#ifndef OPKIT_GRAPH_PASSES_IMPL_NAMED_PASS_IPP_
#define OPKIT_GRAPH_PASSES_IMPL_NAMED_PASS_IPP_

#include "opkit/base/registration/named_parts.hpp"
#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/op/op_registry.hpp"
namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_IMAGE_LOCAL inline NamedParts<NamedPass>& NamedPasses() {
  static NamedParts<NamedPass> passes("pass", "REGISTER_PASS");
  return passes;
}
OPKIT_INLINE bool RegisterPass(IntrusivePtr<const NamedPass> pass, const char* file,
                               int line) noexcept {
  return NamedPasses().Register(std::move(pass), file, line);
}
OPKIT_INLINE bool UnregisterPass(const NamedPass& pass) noexcept {
  return NamedPasses().Unregister(pass);
}
OPKIT_INLINE IntrusivePtr<const NamedPass> GetPass(std::string_view name) {
  return NamedPasses().Get(name);
}
OPKIT_INLINE Graph PassOfFunction::Run(const Graph& graph, const PassArguments& options) const {
  if (!body)
    Throw(ErrorCode::kInvalidArgument, "pass '", name_, "' at ", place_,
          " has no body; call setBody(f)");
  return body(graph, options);
}

}  // namespace detail

OPKIT_INLINE std::vector<std::string> RegisteredPasses() { return detail::NamedPasses().Names(); }
OPKIT_INLINE PassList::Pass FindPass(std::string_view name, PassArguments options) {
  const detail::RegistryUse use;  // keeps all libraries loaded until this function returns
  auto pass = detail::GetPass(name);
  auto held = pass->use();
  return [pass = std::move(pass), held = std::move(held),
          options = std::move(options)](const Graph& graph) { return pass->Run(graph, options); };
}
OPKIT_INLINE Graph RunPass(const Graph& graph, std::string_view name, PassArguments options) {
  PassList passes;
  passes.Add(std::string(name), FindPass(name, std::move(options)));
  return passes.Run(graph, {}, UnknownOperators::kAllowed);
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_IMPL_NAMED_PASS_IPP_
