// Kernel: one implementation of an operator for a device type and a backend. For a KernelQuery it
// proposes configurations; selection picks one of them before memory is planned.
#ifndef OPKIT_OP_KERNEL_HPP_
#define OPKIT_OP_KERNEL_HPP_

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "opkit/base/unique_function.hpp"
#include "opkit/op/fwd.hpp"
#include "opkit/op/inference.hpp"
#include "opkit/op/operator_def.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct FusionQuery;  // opkit/op/fusion.hpp
struct FusedNode;    // opkit/op/fusion.hpp

// A node and all known facts about its values: dtypes, shapes, layouts, constants' data.
struct KernelQuery {
  const OperatorDef& def;
  std::span<const TensorInfo> inputs;
  std::span<const TensorInfo> outputs;
};

// A configuration in which a kernel can run a node.
struct KernelConfig {
  std::vector<Layout> input_layouts;  // empty: all standard; otherwise one layout for each value
  std::vector<Layout> output_layouts;
  std::vector<std::pair<int, int>> inplace;  // {input, output} that may share memory
  int64_t scratch_bytes = 0;                 // bytes for a run; see OperatorBase::Scratch
  double cost_ns = -1;                       // an estimate; negative: none
  // Names one of several ways in which the kernel can run a node with the same layouts: "winograd",
  // "threads=1". The kernel reads the name of the chosen one in its constructor. Empty: the usual
  // way. Configurations with equal layouts have different names. Printable characters in one line.
  std::string variant;

  Layout input_layout(size_t i) const {
    return i < input_layouts.size() ? input_layouts[i] : Layout();
  }
  Layout output_layout(size_t o) const {
    return o < output_layouts.size() ? output_layouts[o] : Layout();
  }
  // True if all layouts are the standard layout.
  bool is_standard() const {
    for (const auto* layouts : {&input_layouts, &output_layouts})
      for (const Layout& layout : *layouts)
        if (!layout.is_standard()) return false;
    return true;
  }
};

namespace detail {

// Returns the name of a kernel's configuration in texts, "onednn" or "onednn winograd".
inline std::string WithVariant(const std::string& backend, const std::string& variant) {
  return variant.empty() ? backend : StrCat(backend, " ", variant);
}

// Makes an operator for a node: a function (const OperatorDef&, Workspace*), which may also take
// the chosen configuration as a third argument: const KernelConfig*, null if none was chosen.
class OperatorCreator {
 public:
  using Pointer = std::unique_ptr<OperatorBase>;

  OperatorCreator() = default;
  template <class F>
    requires(!std::is_same_v<F, OperatorCreator> &&
             (CallableAs<F, Pointer, const OperatorDef&, Workspace*> ||
              CallableAs<F, Pointer, const OperatorDef&, Workspace*, const KernelConfig*>))
  OperatorCreator(F create) {
    if constexpr (CallableAs<F, Pointer, const OperatorDef&, Workspace*, const KernelConfig*>) {
      create_ = std::move(create);
    } else {
      create_ = [create = std::move(create)](const OperatorDef& def, Workspace* ws,
                                             const KernelConfig*) mutable -> Pointer {
        return create(def, ws);
      };
    }
  }
  // The definition is in operator_base.ipp, because it needs the complete class OperatorBase.
  Pointer operator()(const OperatorDef& def, Workspace* ws,
                     const KernelConfig* config = nullptr) const;
  explicit operator bool() const { return static_cast<bool>(create_); }

 private:
  mutable UniqueFunction<Pointer(const OperatorDef&, Workspace*, const KernelConfig*)> create_;
};

// Returns the configurations for a node, best first. If the kernel cannot run the node, returns an
// empty list or throws UnsupportedOperatorFeature with the reason.
using KernelProposer = UniqueFunction<std::vector<KernelConfig>(const KernelQuery&)>;

// Fuses a kernel's node with the next node; returns nullopt if the kernel cannot. Plans call the
// function again with the fused node, to fuse more nodes.
using KernelFuser = UniqueFunction<std::optional<FusedNode>(const FusionQuery&)>;

struct TypedKernel;
using MakeTyped = std::unique_ptr<OperatorBase> (*)(const TypedKernel& kernel,
                                                    const OperatorDef& def, Workspace* ws);
}  // namespace detail

inline constexpr const char* kReferenceBackend = "reference";  // the plain operator

// An implementation of an operator, as a registration describes it.
struct Kernel {
  // Decides between two kernels of the same operator, device and backend: the higher priority wins.
  // Two equal priorities from two places are an error at first lookup.
  enum class Priority : uint8_t { kFallback = 1, kDefault = 2, kPreferred = 3 };

  std::string op;
  DeviceType device = DeviceType::kCPU;
  std::string backend = kReferenceBackend;
  Priority priority = Priority::kDefault;
  const char* file = "";
  int line = 0;
  std::string origin;  // the library of the kernel; empty for the program itself
  detail::IntrusivePtr<detail::RefCounted> owner;  // keeps the library loaded
  detail::OperatorCreator create;  // UnsupportedOperatorFeature: the next kernel is tried
  // Used instead of `create` for a typed operator: its record, and the function that makes the
  // operator from it. The function is null for CPUContext, which CreateOperator handles itself.
  const detail::TypedKernel* typed = nullptr;
  detail::MakeTyped make_typed = nullptr;
  bool shares_state_with_backward = false;  // forward leaves its state for the backward node
  // Empty: one configuration with standard layouts and the schema's in-place pairs.
  mutable detail::KernelProposer propose;
  // True if a configuration may have other layouts than the standard one.
  bool proposes_layouts = false;
  // Empty: the kernel's nodes are never fused.
  mutable detail::KernelFuser fuse;

  std::string Place() const { return StrCat(file, ":", line); }
};

// Thrown by the constructor of an operator that cannot run this node. The next kernel is then
// tried.
class OPKIT_VISIBLE UnsupportedOperatorFeature : public Error {
 public:
  explicit UnsupportedOperatorFeature(std::string what)
      : Error(ErrorCode::kUnsupported, std::move(what)) {}
};

}}  // namespace opkit

#endif  // OPKIT_OP_KERNEL_HPP_
