// CheckLog: the findings and notes of one CheckOperator call. It sends them to the process that
// waits for the check.
#ifndef OPKIT_OP_CHECK_IMPL_CHECK_LOG_IPP_
#define OPKIT_OP_CHECK_IMPL_CHECK_LOG_IPP_

#include <algorithm>

#include "opkit/base/process/child_process.hpp"
#include "opkit/op/check/check_report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Packs a report as text for another process; UnpackReport reads it there.
inline std::string PackReport(const CheckReport& report) {
  std::string out = StrCat(report.runs) + '\0';
  for (const std::string& finding : report.findings) out += "f" + finding + '\0';
  for (const std::string& note : report.notes) out += "n" + note + '\0';
  return out;
}
inline CheckReport UnpackReport(const std::string& packed) {
  CheckReport report;
  report.runs = std::atoi(packed.c_str());
  for (size_t at = packed.find('\0') + 1; at != 0 && at < packed.size();) {
    const size_t end = packed.find('\0', at);
    (packed[at] == 'f' ? report.findings : report.notes)
        .push_back(packed.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return report;
}

// Collects findings and notes, each once.
class CheckLog {
 public:
  // `parent` reports to the process that waits for this one; null outside a child.
  CheckLog(const std::string& op, const ChildReporter* parent) : parent_(parent) {
    report_.op = op;
  }
  const CheckReport& report() const { return report_; }

  void Note(const std::string& note) { AddOnce(report_.notes, note); }
  void Find(const std::string& finding) { AddOnce(report_.findings, finding); }
  // Records a key, which identifies a fault independent of the inputs. Returns true for a new key.
  bool AddKey(const std::string& key) { return AddOnce(keys_, key); }
  bool HasKey(const std::string& key) const { return std::ranges::count(keys_, key) > 0; }
  bool HasKeyOf(const std::string& prefix) const {
    return std::ranges::any_of(keys_, [&](const auto& key) { return key.starts_with(prefix); });
  }
  // Sends the findings and the next step to the parent, which reports them after a crash or a hang.
  void Begin(const std::string& step) const {
    if (!parent_) return;
    parent_->Answer(PackReport(report_));
    parent_->Step(step);
  }
  void CountRun() { ++report_.runs; }

 private:
  static bool AddOnce(std::vector<std::string>& list, const std::string& text) {
    const bool is_new = !std::ranges::count(list, text);
    if (is_new) list.push_back(text);
    return is_new;
  }

  const ChildReporter* const parent_;
  CheckReport report_;
  std::vector<std::string> keys_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CHECK_IMPL_CHECK_LOG_IPP_
