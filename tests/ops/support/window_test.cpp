// The arithmetic of windows: extents, pads, what a window covers.
#include "opkit/ops/support/window.hpp"

#include <doctest/doctest.h>

#include "opkit/ops/nn/pool.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace window_test {
using namespace opkit;

namespace {

WindowAttributes Attributes(Arguments args) {
  return WindowAttributes(OperatorDef("MaxPool", {"x"}, {"y"}, std::move(args)));
}

TEST_CASE("Without attributes windows lie side by side without pads") {
  const WindowAxis axis = Attributes({}).At(0, 5, 3);
  CHECK(axis.output == 3);
  CHECK(axis.stride == 1);
  CHECK(axis.pad_begin == 0);
  CHECK(axis.pad_end == 0);
}

TEST_CASE("Each axis has the pads, strides and dilations at its place in the lists") {
  const WindowAttributes attributes =
      Attributes({{"pads", Ints{1, 2, 3, 4}}, {"strides", Ints{1, 2}}, {"dilations", Ints{1, 3}}});
  const WindowAxis rows = attributes.At(0, 5, 3), columns = attributes.At(1, 5, 3);
  CHECK(rows.pad_begin == 1);
  CHECK(rows.pad_end == 3);
  CHECK(rows.output == 5 + 4 - 3 + 1);
  CHECK(columns.pad_begin == 2);
  CHECK(columns.pad_end == 4);
  CHECK(columns.extent() == 7);
  CHECK(columns.output == (5 + 6 - 7) / 2 + 1);
}

TEST_CASE("SAME pads make an output of the input over the stride, the odd one where it says") {
  for (const char* mode : {"SAME_UPPER", "SAME_LOWER"}) {
    const WindowAxis axis =
        Attributes({{"auto_pad", mode}, {"strides", Ints{2}}, {"pads", Ints{7, 7}}}).At(0, 6, 3);
    CHECK(axis.output == 3);
    CHECK(axis.pad_begin == (mode == std::string("SAME_LOWER") ? 1 : 0));
    CHECK(axis.pad_begin + axis.pad_end == 1);
  }
  // A kernel smaller than the stride leaves elements out and needs no pads.
  const WindowAxis apart =
      Attributes({{"auto_pad", "SAME_UPPER"}, {"strides", Ints{3}}}).At(0, 7, 1);
  CHECK(apart.output == 3);
  CHECK(apart.pad_begin + apart.pad_end == 0);
}

TEST_CASE("VALID has no pads, even if pads are given") {
  const WindowAxis axis = Attributes({{"auto_pad", "VALID"}, {"pads", Ints{2, 2}}}).At(0, 5, 3);
  CHECK(axis.output == 3);
  CHECK(axis.pad_begin == 0);
}

TEST_CASE("ceil_mode adds a window that reaches past the end, but none that starts in the pad") {
  auto output = [](int64_t ceil, int64_t input, int64_t kernel, int64_t stride, Ints pads) {
    return Attributes({{"ceil_mode", ceil}, {"strides", Ints{stride}}, {"pads", pads}})
        .At(0, input, kernel)
        .output;
  };
  CHECK(output(0, 4, 3, 2, {0, 0}) == 1);
  CHECK(output(1, 4, 3, 2, {0, 0}) == 2);
  // Windows at -1, 1 and 3, which is past the input of 2.
  CHECK(output(0, 2, 1, 2, {1, 1}) == 2);
  CHECK(output(1, 2, 1, 2, {1, 1}) == 2);
}

TEST_CASE("ceil_mode takes a window that is larger than the input by less than a stride") {
  const auto output = [](int64_t input, int64_t kernel, int64_t stride, Ints pads) {
    return Attributes({{"ceil_mode", 1}, {"strides", Ints{stride}}, {"pads", pads}})
        .At(0, input, kernel)
        .output;
  };
  CHECK(output(2, 3, 2, {0, 0}) == 1);
  CHECK(output(1, 4, 4, {0, 0}) == 1);
  CHECK(output(1, 5, 3, {1, 1}) == 1);
  CHECK(ErrorOf([&] { output(2, 3, 1, {0, 0}); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { output(2, 4, 2, {0, 0}); }).code() == ErrorCode::kInvalidArgument);
  CHECK(output(0, 1, 2, {0, 0}) == 0);  // the only window would start in the end pad
}

TEST_CASE("A window that does not fit is an error that shows the sizes") {
  const Error error = ErrorOf([] {
    static_cast<void>(
        Attributes({{"dilations", Ints{1, 4}}, {"pads", Ints{0, 1, 0, 1}}}).At(1, 6, 3));
  });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(),
                 "MaxPool: a window of 9 (kernel 3, dilation 4) does not fit in the extent 6 of "
                 "spatial axis 1 with pads 1 and 1"));
}

TEST_CASE("Impossible attributes are refused, with the expected values") {
  auto message = [](Arguments args) {
    return ErrorOf([&] { Attributes(args).CheckRank(2); }).message();
  };
  CHECK(message({{"strides", Ints{1, 0}}}) ==
        "MaxPool: strides is [1, 0], expected numbers from 1 to 2147483647");
  CHECK(Contains(message({{"pads", Ints{0, -1, 0, 0}}}), "pads is [0, -1, 0, 0], expected"));
  CHECK(Contains(message({{"kernel_shape", Ints{1, int64_t{1} << 40}}}), "kernel_shape is"));
  CHECK(message({{"auto_pad", "SAME"}}) ==
        "argument 'auto_pad' of MaxPool is 'SAME', which is none of its values (known: 'NOTSET', "
        "'SAME_UPPER', 'SAME_LOWER', 'VALID')");
  CHECK(
      message({{"dilations", Ints{1}}}) ==
      "MaxPool: dilations is [1], expected 2 numbers for 2 spatial axes (the input's rank less 2)");
  CHECK(Contains(message({{"pads", Ints{1, 1}}}), "pads is [1, 1], expected 4 numbers"));
}

TEST_CASE("Hostile extents are errors and never overflow") {
  const WindowAttributes attributes =
      Attributes({{"dilations", Ints{INT32_MAX}}, {"pads", Ints{INT32_MAX, INT32_MAX}}});
  CHECK(ErrorOf([&] { static_cast<void>(attributes.At(0, INT64_MAX, INT32_MAX)); }).code() ==
        ErrorCode::kOutOfRange);
  CHECK(ErrorOf([&] { static_cast<void>(attributes.At(0, 1, INT64_MAX)); }).code() ==
        ErrorCode::kOutOfRange);
  CHECK(ErrorOf([&] { static_cast<void>(attributes.At(0, 7, INT32_MAX)); }).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { static_cast<void>(attributes.At(0, 7, 0)); }).code() ==
        ErrorCode::kInvalidArgument);
}

TEST_CASE("An extent that is kept keeps its symbol") {
  const WindowAttributes padded = Attributes({{"pads", Ints{1, 1}}});
  CHECK(padded.OutputDim(0, Sym("W"), 3) == Sym("W"));
  CHECK(padded.OutputDim(0, Sym("W"), 5).is_unknown());
  CHECK(padded.OutputDim(0, 8, 5) == Dim(6));
  CHECK(padded.OutputDim(0, 8, Dim()).is_unknown());
  const WindowAttributes same = Attributes({{"auto_pad", "SAME_UPPER"}});
  CHECK(same.OutputDim(0, Sym("W"), Dim()) == Sym("W"));
  CHECK(same.OutputDim(0, 8, Dim()) == Dim(8));
  const WindowAttributes halved = Attributes({{"auto_pad", "SAME_UPPER"}, {"strides", Ints{2}}});
  CHECK(halved.OutputDim(0, Sym("W"), 3).is_unknown());
  CHECK(halved.OutputDim(0, Dim::AtMost(9), 3) == Dim::AtMost(5));
  CHECK(halved.OutputDim(0, 9, Dim()) == Dim(5));
}

// Everything that a window's parts say, found by trying each element.
TEST_CASE("The elements of a window agree with a count one by one") {
  for (int64_t input : {1, 2, 5, 8})
    for (int64_t kernel : {1, 2, 3, 5})
      for (int64_t stride : {1, 2, 3})
        for (int64_t dilation : {1, 2, 3})
          for (int64_t before : {0, 1, 4})
            for (int64_t after : {0, 2}) {
              const int64_t room = input + before + after - (kernel - 1) * dilation - 1;
              if (room < 0) continue;
              WindowAxis axis;
              axis.input = input;
              axis.kernel = kernel;
              axis.stride = stride;
              axis.dilation = dilation;
              axis.pad_begin = before;
              axis.pad_end = after;
              axis.output = room / stride + 2;  // the last one as ceil_mode may add it
              INFO(input, " ", kernel, " ", stride, " ", dilation, " ", before, " ", after);
              int64_t interior = 0;
              for (int64_t o = 0; o < axis.output; ++o) {
                int64_t first = -1, count = 0, padded = 0;
                for (int64_t k = 0; k < kernel; ++k) {
                  const int64_t at = o * stride + k * dilation - before;
                  if (at < input + after) ++padded;
                  if (at < 0 || at >= input) continue;
                  if (count++ == 0) first = k;
                }
                CHECK(axis.CountWithPads(o) == padded);
                CHECK(axis.KernelEnd(o) - axis.KernelBegin(o) == count);
                if (count > 0) CHECK(axis.KernelBegin(o) == first);
                if (count == kernel) ++interior;
                CHECK((count == kernel) == (o >= axis.InteriorBegin() && o < axis.InteriorEnd()));
              }
              CHECK(axis.InteriorEnd() - axis.InteriorBegin() == interior);
            }
}

TEST_CASE("Taps pair the elements of kernel and input in row-major order, without pads") {
  WindowAxes axes(2);
  axes[0] = {.input = 3, .output = 3, .kernel = 3, .pad_begin = 1, .pad_end = 1};
  axes[1] = {.input = 4, .output = 2, .kernel = 2, .stride = 2, .dilation = 2, .pad_begin = 1};
  WindowTaps taps(axes);
  // Rows -1 (a pad), 0 and 1; columns -1 (a pad) and 1.
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const WindowTap& tap : taps.At(0)) found.emplace_back(tap.kernel, tap.input);
  CHECK(found == std::vector<std::pair<int64_t, int64_t>>{{3, 1}, {5, 5}});
  // Rows 1, 2 and 3 (a pad); columns 1 and 3.
  found.clear();
  for (const WindowTap& tap : taps.At(5)) found.emplace_back(tap.kernel, tap.input);
  CHECK(found == std::vector<std::pair<int64_t, int64_t>>{{0, 5}, {1, 7}, {2, 9}, {3, 11}});
}

}  // namespace
}  // namespace window_test
