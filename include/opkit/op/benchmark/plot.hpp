// ToSvg: draws the times of kernels that CompareKernels has measured: bars for one problem, lines
// for a sweep of sizes, and beside them the roofline of the machine.
#ifndef OPKIT_OP_BENCHMARK_PLOT_HPP_
#define OPKIT_OP_BENCHMARK_PLOT_HPP_

#include <span>
#include <string>
#include <vector>

#include "opkit/op/benchmark/compare_kernels.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct KernelPlotOptions {
  std::string title = {};  // empty: the name of the first comparison
  // For several comparisons: the name of the horizontal axis, and the place of each comparison on
  // it, such as "64". Places that are not all different numbers above 0 are evenly apart.
  std::string axis = {};
  std::vector<std::string> places = {};
  // Rates of the machine (MachinePeak). The roofline has the ceilings of the largest number of
  // threads. Empty: there is no roofline.
  std::vector<MachineRates> peaks = {};
};

// Returns an SVG document:
//
// - for one comparison a bar for each row, with the median's 95 % interval and the verdict; a
//   refused row has its reason instead;
// - for several a line for each kernel and number of threads through the medians, with their
//   intervals. An axis is logarithmic if its values span more than a factor of 8;
// - with `peaks` the roofline: operations for each byte across, GFLOP/s up, the ceilings of FMA and
//   of each level of memory, and a point for each row whose operations and bytes are known.
//
// Tooltips have the figures. Throws kInvalidArgument if there are not as many places as
// comparisons, unless there are none.
//
//   const KernelComparison found = CompareKernels("MatMul", {.shapes = {{64, 64}, {64, 64}}});
//   SaveFile("matmul.svg", ToSvg({&found, 1}, {.peaks = {MachinePeak()}}));
std::string ToSvg(std::span<const KernelComparison> comparisons,
                  const KernelPlotOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/benchmark/impl/plot.ipp"
#endif

#endif  // OPKIT_OP_BENCHMARK_PLOT_HPP_
