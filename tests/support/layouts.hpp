// Three layouts, and an operator that works in the layouts that its node names, for tests of
// selection and conversion.
#ifndef OPKIT_TESTS_SUPPORT_LAYOUTS_HPP_
#define OPKIT_TESTS_SUPPORT_LAYOUTS_HPP_

#include <cstring>

#include "opkit/core/layout_registry.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"

namespace test_layouts {

using namespace opkit;

// A function that returns the place in memory of element i of n elements.
using PlaceOf = int64_t (*)(int64_t i, int64_t n);
inline int64_t InOrder(int64_t i, int64_t) { return i; }
inline int64_t FromTheEnd(int64_t i, int64_t n) { return n - 1 - i; }
inline int64_t WithGaps(int64_t i, int64_t) { return 2 * i; }

template <PlaceOf kFrom, PlaceOf kTo>
void Move(const Tensor& from, Tensor& to) {
  const int64_t size = ItemSize(from.dtype()), n = from.numel();
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(static_cast<char*>(to.raw_mutable_data()) + kTo(i, n) * size,
                static_cast<const char*>(from.raw_data()) + kFrom(i, n) * size,
                static_cast<size_t>(size));
}

// "A" stores the elements from last to first. "B" leaves a gap behind each element.
inline LayoutId LayoutA() {
  static const LayoutId id = RegisterLayout({.name = "A",
                                             .to_standard = &Move<FromTheEnd, InOrder>,
                                             .from_standard = &Move<InOrder, FromTheEnd>});
  return id;
}
inline LayoutId LayoutB() {
  static const LayoutId id = RegisterLayout({.name = "B",
                                             .to_standard = &Move<WithGaps, InOrder>,
                                             .from_standard = &Move<InOrder, WithGaps>,
                                             .bytes = [](const Shape& shape, DType dtype) {
                                               return 2 * Tensor::CheckedBytes(shape, dtype);
                                             }});
  return id;
}
// The descriptor of layout "Described", which stores elements as "A" does. All descriptors are
// equal; they count their comparisons.
class CountedDescriptor final : public Layout::Descriptor {
 public:
  inline static int comparisons = 0;
  bool Equals(const Layout::Descriptor&) const override { return ++comparisons > 0; }
  std::string Describe() const override { return "from the end"; }
};
inline LayoutId Described() {
  static const LayoutId id = RegisterLayout({.name = "Described",
                                             .to_standard = &Move<FromTheEnd, InOrder>,
                                             .from_standard = &Move<InOrder, FromTheEnd>,
                                             .has_descriptors = true});
  return id;
}
inline PlaceOf PlaceIn(const Layout& layout) {
  if (layout.id == LayoutA() || layout.id == Described()) return &FromTheEnd;
  return layout.id == LayoutB() ? &WithGaps : &InOrder;
}
// Returns the layout of this name; each result for "Described" has a descriptor of its own.
inline Layout Named(const std::string& name) {
  LayoutA(), LayoutB(), Described();
  if (name != "Described") return Layout{FindLayout(name), {}};
  return Layout{Described(), detail::MakeIntrusive<const CountedDescriptor>()};
}

// Computes y = 2 a + b, or 2 a without b. The attributes `a`, `b` and `y` name the layouts of these
// tensors. `inplace` lets y take a's memory. With `follows`, Propose returns the layout in which
// `a` comes, then the standard layout.
class InLayoutsOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const Arguments& args = query.def.args();
    std::vector<KernelConfig> configs;
    const auto add = [&](const Layout& a, const Layout& b, const Layout& y) {
      KernelConfig& config = configs.emplace_back();
      config.input_layouts = {a};
      if (query.inputs.size() > 1) config.input_layouts.push_back(b);
      config.output_layouts = {y};
      if (args.Get<bool>("inplace", false)) config.inplace = {{0, 0}};
    };
    if (args.Get<bool>("follows", false)) {
      const Layout& given = query.inputs[0].layout;
      add(given, given, given);
      if (!given.is_standard()) add({}, {}, {});
    } else {
      add(Named(args.Get<std::string>("a", "standard")),
          Named(args.Get<std::string>("b", "standard")),
          Named(args.Get<std::string>("y", "standard")));
    }
    return configs;
  }
  bool RunOnDevice() override {
    const Tensor& a = Input(0);
    const Tensor* b = InputSize() > 1 ? &Input(1) : nullptr;
    Tensor* y = Output(0, a.shape(), a.dtype());
    const int64_t n = a.numel();
    const PlaceOf in_a = PlaceIn(a.layout()), in_y = PlaceIn(y->layout());
    const PlaceOf in_b = b ? PlaceIn(b->layout()) : nullptr;
    // Copies first: in place, an element may be written before it is read.
    std::vector<float> values(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      values[static_cast<size_t>(i)] =
          2 * static_cast<const float*>(a.raw_data())[in_a(i, n)] +
          (b ? static_cast<const float*>(b->raw_data())[in_b(i, n)] : 0);
    for (int64_t i = 0; i < n; ++i)
      static_cast<float*>(y->raw_mutable_data())[in_y(i, n)] = values[static_cast<size_t>(i)];
    return true;
  }
};

// The reference kernel: computes the same as InLayoutsOp, in the standard layout.
class PlainOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& a = Input(0);
    Tensor* y = Output(0, a.shape(), a.dtype());
    for (int64_t i = 0; i < a.numel(); ++i)
      y->mutable_data<float>()[i] =
          2 * a.data<float>()[i] + (InputSize() > 1 ? Input(1).data<float>()[i] : 0);
    return true;
  }
};

OPERATOR_SCHEMA(InLayouts)
    .NumInputs(1, 2)
    .NumOutputs(1)
    .Inplace({{0, 0}})
    .IdenticalTypeAndShapeOfInput(0)
    .Arg<std::string>("a", "the layout of the first input", "standard")
    .Arg<std::string>("b", "that of the second", "standard")
    .Arg<std::string>("y", "that of the output", "standard")
    .Arg<bool>("inplace", "the output may take the first input's memory", false)
    .Arg<bool>("follows", "works in the layout that the first input comes in", false);
REGISTER_CPU_OPERATOR(InLayouts, PlainOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(InLayouts, layouts, InLayoutsOp);
OPKIT_REGISTER_BACKEND_RANK("layouts", 100);

}  // namespace test_layouts

#endif  // OPKIT_TESTS_SUPPORT_LAYOUTS_HPP_
