// CheckOptions and CheckReport: the argument and the result of CheckOperator.
#ifndef OPKIT_OP_CHECK_CHECK_REPORT_HPP_
#define OPKIT_OP_CHECK_CHECK_REPORT_HPP_

#include "opkit/core/attribute.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// False under ThreadSanitizer, which kills a child that starts threads, and in builds for an
// emulator that cannot start threads in a child. All units of these builds define
// OPKIT_CHECK_WITHOUT_CHILD.
inline constexpr bool kChecksInChild =
#if defined(__SANITIZE_THREAD__) || defined(OPKIT_CHECK_WITHOUT_CHILD)
    false;
#elif defined(__has_feature)
    !__has_feature(thread_sanitizer);
#else
    true;
#endif

}  // namespace detail

// Which results CheckOperator compares, and how.
struct CheckComparisonOptions {
  // False for an operator that uses random numbers: the check then compares no results.
  bool deterministic = true;
  // Inputs that the operator may change, in addition to the inputs that the schema names.
  std::vector<int> mutated_inputs = {};
  bool strided = true;           // compare with the results of strided inputs
  bool gradient = true;          // compare the gradient with differences of forward runs
  int threads = 4;               // compared with the result on one thread
  bool bitwise_threads = false;  // not even rounding may differ
  // The allowed difference between kernels and between numbers of threads; relative, absolute below
  // 1. Negative: 1e-9 for float64, 1e-4 for float32, 1e-2 for float16, 5e-2 for bfloat16; integers
  // exact.
  double tolerance = -1;
};

// The process of the runs, and their limits of time.
struct CheckRunOptions {
  // True to run the operator in a forked child, where a crash or a hang is a finding; false to run
  // it in this process, for a debugger. The child has its own copies of the program's variables.
  bool in_child = detail::kChecksInChild;
  double hang_seconds = 60;  // limit for one run in the child; longer is a hang
  int deadline_ms = 10000;   // limit for the completion of an asynchronous run
};

// The options of CheckOperator: the node and its inputs, and two groups.
struct CheckOptions {
  Arguments args = {};  // the node's arguments; required ones must be here
  int num_inputs = -1;  // default: the schema's named inputs, else its smallest number
  int num_outputs = -1;
  // The shapes of generated inputs: one for each, or one for all. {{64, 1024}, {3}}
  std::vector<Shape> input_shapes = {};
  // Several cases; all inputs of a case have the same shape. Without input_shapes and shapes the
  // check uses 12 different shapes. If inference accepts none of these, it uses inputs of different
  // shapes that inference accepts.
  std::vector<Shape> shapes = {};
  // Default: the dtypes that the schema claims for its inputs. Without claims: if inference refuses
  // some dtypes, the accepted dtypes, else float32.
  std::vector<DType> dtypes = {};
  uint64_t seed = 1;  // the seed from which inputs are generated
  CheckComparisonOptions compare = {};
  CheckRunOptions run = {};
};

// The result of CheckOperator.
struct CheckReport {
  std::string op;
  std::vector<std::string> findings;  // each once, with the first inputs that show it
  std::vector<std::string> notes;     // checks that could not be made, and why
  int runs = 0;

  bool ok() const { return findings.empty(); }
  friend std::string ToString(const CheckReport& report) {
    std::string out =
        StrCat("operator ", report.op, ": ",
               report.ok() ? "nothing wrong" : StrCat(report.findings.size(), " wrong"), " in ",
               report.runs, report.runs == 1 ? " run" : " runs");
    for (const std::string& finding : report.findings) out += "\n  " + finding;
    for (const std::string& note : report.notes) out += "\n  (not checked: " + note + ")";
    return out;
  }
};

}}  // namespace opkit

#endif  // OPKIT_OP_CHECK_CHECK_REPORT_HPP_
