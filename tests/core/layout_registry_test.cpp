#include "opkit/core/layout_registry.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <optional>
#include <stdexcept>

#include "support/check_fails.hpp"
#include "support/layouts.hpp"
#include "support/tensors.hpp"

namespace layout_registry_test {
namespace {

using namespace opkit;
using test_layouts::LayoutA;
using test_layouts::LayoutB;

const Layout kA{LayoutA(), {}}, kB{LayoutB(), {}};

std::vector<LayoutId> StepsOf(const LayoutPath& path) {
  std::vector<LayoutId> ids;
  for (const Layout& step : path.steps) ids.push_back(step.id);
  return ids;
}
void Nothing(const Tensor&, Tensor&) {}

// Two blocks of a size: a layout whose tensors have descriptors of their own.
class Blocks final : public Layout::Descriptor {
 public:
  explicit Blocks(int size) : size_(size) {}
  bool Equals(const Layout::Descriptor& other) const override {
    const auto* blocks = dynamic_cast<const Blocks*>(&other);
    return blocks && blocks->size_ == size_;
  }
  std::string Describe() const override { return StrCat("of ", size_); }
  int64_t Bytes(const Shape& shape, DType dtype) const override {
    return (shape.numel() + size_ - 1) / size_ * size_ * ItemSize(dtype);
  }

 private:
  int size_;
};

}  // namespace

TEST_CASE("a layout needs a name of its own and both conversions") {
  CheckFails([] { RegisterLayout({.name = "One", .to_standard = &Nothing, .from_standard = {}}); },
             "layout 'One' needs both to_standard and from_standard");
  CheckFails([] { RegisterLayout({.name = "One", .to_standard = {}, .from_standard = &Nothing}); },
             "layout 'One' needs both to_standard and from_standard");
  CheckFails(
      [] { RegisterLayout({.name = "", .to_standard = &Nothing, .from_standard = &Nothing}); },
      "a layout needs a name");
  for (const char* name : {"A", "standard"})
    CheckFails(
        [&] { RegisterLayout({.name = name, .to_standard = &Nothing, .from_standard = &Nothing}); },
        StrCat("there is a layout '", name, "' already"));
  CheckFails([] { FindLayout("One"); }, "there is no layout 'One'");
}

TEST_CASE("a converter needs a function, two layouts and a rate that can be added up") {
  for (const double rate :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    CheckFails(
        [&] {
          RegisterLayout({.name = "One",
                          .to_standard = &Nothing,
                          .from_standard = &Nothing,
                          .ns_per_byte = rate});
        },
        StrCat("layout 'One' says ", rate, " ns for each byte, expected 0 or more"));
    CheckFails([&] { RegisterLayoutConverter(LayoutA(), LayoutB(), &Nothing, rate); },
               "the converter from A to B says ");
  }
  CheckFails([] { RegisterLayoutConverter(LayoutA(), LayoutB(), {}); },
             "the converter from A to B needs a function");
  CheckFails([] { RegisterLayoutConverter(LayoutA(), LayoutA(), &Nothing); },
             "the converter from A to A leads from a layout without descriptors to itself");
  CheckFails([] { FindLayout("One"); }, "there is no layout 'One'");
}

TEST_CASE("an error in a layout's function names the layout and the tensor") {
  static int64_t bytes = 0;
  static void (*convert)(const Tensor& from, Tensor& to) = nullptr;
  static const LayoutId wrong = RegisterLayout({
      .name = "Wrong",
      .to_standard = &Nothing,
      .from_standard = [](const Tensor& from, Tensor& to) { convert(from, to); },
      .bytes =
          [](const Shape&, DType) {
            if (bytes == 13) throw std::runtime_error("no idea");
            return bytes;
          },
  });
  const Layout layout{wrong, {}};
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  for (const int64_t said : {int64_t{-1}, int64_t{0}}) {
    bytes = said;
    CheckFails([&] { ConvertLayout(x, layout); },
               StrCat("layout Wrong says ", said, " bytes for float32[2]"));
  }
  CHECK(LayoutBytes(layout, {0}, DType::kFloat32) == 0);
  bytes = 13;
  CheckFails([&] { ConvertLayout(x, layout); }, "no idea");
  CheckFails([&] { ConvertLayout(x, layout); }, "in the size of float32[2] in layout Wrong");
  // More than any memory, and than twice a count can hold: a conversion is not found to be cheap.
  bytes = std::numeric_limits<int64_t>::max();
  CHECK(FindLayoutPath(layout, kA, {2}, DType::kFloat32).cost_ns > 1e18);
  bytes = 8;
  convert = [](const Tensor&, Tensor&) { throw std::runtime_error("cannot"); };
  CheckFails([&] { ConvertLayout(x, layout); }, "cannot");
  CheckFails([&] { ConvertLayout(x, layout); },
             "in the conversion from standard to Wrong of float32[2]");
  convert = [](const Tensor& from, Tensor& to) { to = from; };
  CheckFails([&] { ConvertLayout(x, layout); }, "returned another tensor");
  convert = [](const Tensor&, Tensor& to) { to.Resize({3}, DType::kFloat32); };
  CheckFails([&] { ConvertLayout(x, layout); }, "returned another tensor");
}

TEST_CASE("layouts are found by name and print it") {
  CHECK(FindLayout("A") == LayoutA());
  CHECK(FindLayout("standard") == kStandardLayout);
  CHECK(ToString(kA) == "A");
  CHECK(ToString(Layout()) == "standard");
  CHECK(IsRegisteredLayout(LayoutB()));
  CHECK_FALSE(IsRegisteredLayout(999));
  CHECK(LayoutName(999) == "layout 999");
  CheckFails([] { FindLayout("standrad"); }, "did you mean 'standard'?");
}

TEST_CASE("a layout is made again from its text") {
  const auto again = [](const std::string& text) {
    return LayoutFromText(text, {4, 3}, DType::kFloat32);
  };
  for (const Layout& layout : {kA, Layout()}) CHECK(again(ToString(layout)) == layout);
  for (const char* text : {"", "AA", "A ", "A of 8", "unknown"}) CHECK_FALSE(again(text));
  LayoutDefinition definition{
      .name = "Texts", .to_standard = &Nothing, .from_standard = &Nothing, .has_descriptors = true};
  static LayoutId id = 0;
  definition.from_text = [](std::string_view text, const Shape& shape,
                            DType dtype) -> std::optional<Layout> {
    if (text != "of 12" || shape != Shape({4, 3}) || dtype != DType::kFloat32) return {};
    return Layout{id, detail::MakeIntrusive<const Blocks>(12)};
  };
  id = RegisterLayout(std::move(definition));
  const Layout twelve{id, detail::MakeIntrusive<const Blocks>(12)};
  CHECK(again(ToString(twelve)) == twelve);
  for (const char* text : {"Texts", "Texts of 8", "Texts of 12 "}) CHECK_FALSE(again(text));
  CHECK_FALSE(LayoutFromText("Texts of 12", {4, 4}, DType::kFloat32));
}

TEST_CASE("a tensor takes the bytes of its layout, and elements survive every conversion") {
  const Tensor x = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor in_b = ConvertLayout(x, kB);
  CHECK(in_b.storage()->nbytes() >= 48);
  CHECK(LayoutBytes(kB, {2, 3}, DType::kFloat32) == 48);
  CHECK(in_b.layout() == kB);
  CHECK(in_b.shape() == Shape{2, 3});
  CHECK(static_cast<const float*>(in_b.raw_data())[4] == 3);
  const Tensor in_a = ConvertLayout(in_b, kA);
  CHECK(static_cast<const float*>(in_a.raw_data())[0] == 6);
  CHECK(ConvertLayout(in_a, {}).ToVector<float>() == x.ToVector<float>());
  CHECK(ConvertLayout(x, {}).raw_data() == x.raw_data());
  // Strides are followed.
  const Tensor turned = ConvertLayout(x.Permute({1, 0}), kA);
  CHECK(ConvertLayout(turned, {}).ToVector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
}

TEST_CASE("a tensor that is in an equal layout keeps its memory, with the descriptor of the call") {
  using test_layouts::Named;
  Tensor given = ConvertLayout(Tensor::From<float>({3}, {1, 2, 3}), Named("Described"));
  given.SetDevice({DeviceType::kCPUStream, 0});
  const Layout equal = Named("Described");
  const Tensor same = ConvertLayout(given, equal);
  CHECK(same.layout().descriptor == equal.descriptor);
  CHECK(same.raw_data() == given.raw_data());
  CHECK(same.device() == given.device());
  CHECK(ConvertLayout(same, {}).ToVector<float>() == std::vector<float>{1, 2, 3});
}

TEST_CASE("a conversion reports an impossible request") {
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  CheckFails([&] { ConvertLayout(x, Layout{999, {}}); }, "layout 999 is not registered");
  CheckFails(
      [&] { ConvertLayout(Tensor(), kA); },
      "cannot convert undefined[0] on cpu (uninitialized) to layout A: it has no elements yet");
  Tensor other = MakeTensor({3}, DType::kFloat32, kA);
  CheckFails([&] { ConvertLayoutTo(x, other); },
             "the target needs memory, the same dtype and the same");
  CheckFails([&] { RegisterLayoutConverter(LayoutA(), 999, &Nothing); },
             "layout 999 is not registered");
  CheckFails([&] { RegisterLayoutConverter(LayoutA(), kStandardLayout, &Nothing); },
             "there is a converter from A to standard already");
}

TEST_CASE("the cheapest path is taken: through the standard layout, or directly") {
  const auto path = [](const Layout& from, const Layout& to) {
    return FindLayoutPath(from, to, {1000}, DType::kFloat32);
  };
  CHECK(StepsOf(path(kA, kB)) == std::vector<LayoutId>{kStandardLayout, LayoutB()});
  CHECK(StepsOf(path({}, kA)) == std::vector<LayoutId>{LayoutA()});
  CHECK(path(kA, kA).steps.empty());
  CHECK(path(kA, kA).cost_ns == 0);
  CHECK(path(kA, kB).cost_ns > path({}, kB).cost_ns);

  const LayoutId c =
      RegisterLayout({.name = "C", .to_standard = &Nothing, .from_standard = &Nothing});
  const LayoutId d =
      RegisterLayout({.name = "D", .to_standard = &Nothing, .from_standard = &Nothing});
  RegisterLayoutConverter(c, d, &Nothing, /*ns_per_byte=*/100);
  const Layout in_c{c, {}}, in_d{d, {}};
  CHECK(StepsOf(path(in_c, in_d)) == std::vector<LayoutId>{kStandardLayout, d});  // though direct
  CHECK(StepsOf(path(in_d, in_c)) == std::vector<LayoutId>{kStandardLayout, c});
  RegisterLayoutConverter(d, c, &Nothing);
  CHECK(StepsOf(path(in_d, in_c)) == std::vector<LayoutId>{c});
  // For a tensor of few elements the number of steps decides.
  CHECK(StepsOf(FindLayoutPath(in_c, in_d, {1}, DType::kInt8)) == std::vector<LayoutId>{d});
}

TEST_CASE("no path leads through a layout with descriptors, but from one description to another") {
  const LayoutId blocked = RegisterLayout({.name = "Blocked",
                                           .to_standard = &Nothing,
                                           .from_standard = &Nothing,
                                           .has_descriptors = true,
                                           .ns_per_byte = 0});
  RegisterLayoutConverter(LayoutA(), blocked, &Nothing, 0);
  RegisterLayoutConverter(blocked, LayoutB(), &Nothing, 0);
  const auto of = [&](int size) { return Layout{blocked, detail::MakeIntrusive<Blocks>(size)}; };
  const auto steps = [&](const Layout& from, const Layout& to) {
    return StepsOf(FindLayoutPath(from, to, {1000}, DType::kFloat32));
  };
  CHECK(steps(kA, kB) == std::vector<LayoutId>{kStandardLayout, LayoutB()});
  CHECK(steps(of(8), of(16)) == std::vector<LayoutId>{kStandardLayout, blocked});
  CHECK(steps(of(8), of(8)).empty());
  CHECK(steps(of(8), kB) == std::vector<LayoutId>{LayoutB()});
  CHECK(MakeTensor({5}, DType::kFloat32, of(8)).storage()->nbytes() >= 32);
  CHECK(ToString(of(8)) == "Blocked of 8");
}

}  // namespace layout_registry_test
