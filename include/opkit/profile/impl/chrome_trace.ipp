// The writer of Chrome traces.
#ifndef OPKIT_PROFILE_IMPL_CHROME_TRACE_IPP_
#define OPKIT_PROFILE_IMPL_CHROME_TRACE_IPP_

#include <algorithm>

#include "opkit/base/index.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/json_text.hpp"
#include "opkit/profile/nesting.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Writes the events of one profile to a file, in blocks of about kBlock bytes.
class ChromeTrace {
 public:
  ChromeTrace(const Profile& profile, OutputFile& file)
      : profile_(profile), file_(file), pid_(getpid()) {}

  void Write() {
    out_ += R"({"displayTimeUnit":"ns","distributedInfo":{"rank":0},"otherData":{"dropped":)";
    AppendInteger(out_, profile_.dropped);
    out_ += "},\"traceEvents\":[";
    WriteNames();
    WalkSpans(
        profile_, [&](const ProfileSpan& span) { WriteSpan(span); },
        [&](const ProfileSpan& span, int64_t begin, int64_t end) {
          if (HasUserCode(span)) WriteUserCode(span, begin, end);
        },
        [](const ProfileSpan&, int64_t) {});
    for (const ProfileCounter& counter : profile_.counters) {
      if (!__builtin_isfinite(counter.value)) continue;  // not in JSON; viewers reject null
      Begin("C", InternedName(counter.name), counter.time);
      out_ += R"(,"args":{"value":)";
      AppendNumber(out_, counter.value);
      out_ += "}}";
    }
    for (const ProfileMarker& marker : profile_.markers) {
      Begin("i", InternedName(marker.name), marker.time);
      Thread(marker.thread);
      out_ += marker.frame ? R"(,"cat":"frame","s":"p"})" : R"(,"cat":"marker","s":"t"})";
    }
    out_ += "\n]}\n";
    file_.Write(out_);
  }

 private:
  void WriteNames() {
    Metadata("process_name", -1, program_invocation_short_name);
    for (size_t i = 0; i < profile_.threads.size(); ++i)
      Metadata("thread_name", static_cast<int>(i), profile_.threads[i].name);
  }
  void Metadata(const char* what, int thread, std::string_view name) {
    Begin("M", what, 0);
    if (thread >= 0) Thread(thread);
    out_ += R"(,"args":{"name":)";
    AppendJsonString(out_, name);
    out_ += "}}";
  }
  void WriteSpan(const ProfileSpan& span) {
    const std::string& name = NameOf(span);
    BeginEscaped("X", name, span.begin);
    Duration(span.end - span.begin);
    Thread(span.thread);
    Category(span);
    out_ += R"(,"args":{"id":)";
    AppendInteger(out_, span.id);
    out_ += R"(,"parent":)";
    AppendInteger(out_, span.parent);
    if (span.node != 0) {
      out_ += R"(,"node":)";
      AppendJsonString(out_, InternedName(span.node));
    }
    if (span.device != Device{}) {
      out_ += R"(,"device":)";
      AppendJsonString(out_, ToString(span.device));
    }
    if (span.work.shapes != 0) {
      out_ += R"(,"shapes":)";
      AppendJsonString(out_, InternedName(span.work.shapes));
      out_ += R"(,"backend":)";
      AppendJsonString(out_, InternedName(span.work.backend));
      out_ += R"(,"flops":)";
      AppendInteger(out_, span.work.flops);
      out_ += R"(,"bytes":)";
      AppendInteger(out_, span.work.bytes);
    }
    if (span.pushed >= 0) {
      out_ += R"(,"wait_us":)";
      AppendMicroseconds(out_, span.begin - span.pushed);
    }
    const auto counts =
        std::lower_bound(profile_.counts.begin(), profile_.counts.end(), span.id,
                         [](const ProfileCounts& one, uint64_t id) { return one.invocation < id; });
    if (counts != profile_.counts.end() && counts->invocation == span.id)
      for (size_t i = 0; i < profile_.counted.size(); ++i) {
        out_ += ',';
        AppendJsonString(out_, profile_.counted[i]);
        out_ += ':';
        AppendInteger(out_, counts->values[i]);
      }
    if (span.open) out_ += R"(,"open":true)";
    out_ += '}';
    const bool is_task = span.pushed >= 0 && span.pusher >= 0;
    if (is_task) Flow(span, "flow_in");
    out_ += '}';
    if (is_task) {  // an arrow needs a slice to begin at, and a push may have none around it
      BeginEscaped("X", name, span.pushed);
      Duration(0);
      Thread(span.pusher);
      out_ += R"(,"cat":"push")";
      Flow(span, "flow_out");
      out_ += '}';
    }
    if (const auto [from, to] = AsynchronousTime(span); to >= 0) {
      Asynchronous("b", name, span, from);
      Asynchronous("e", name, span, to);
    }
  }
  void WriteUserCode(const ProfileSpan& span, int64_t begin, int64_t end) {
    Begin("X", UserCodeName(span), begin);
    Duration(end - begin);
    Thread(span.thread);
    Category(span);
    out_ += R"(,"args":{"parent":)";
    AppendInteger(out_, span.id);
    out_ += "}}";
  }
  // Appends one end of the arrow that has the invocation's id.
  void Flow(const ProfileSpan& span, const char* end) {
    out_ += R"(,"bind_id":)";
    AppendInteger(out_, span.id);
    out_ += R"(,")";
    out_ += end;
    out_ += R"(":true)";
  }
  // Writes one of the two events that the invocation's id connects.
  void Asynchronous(const char* phase, const std::string& name, const ProfileSpan& span,
                    int64_t time) {
    BeginEscaped(phase, name, time);
    Thread(span.thread);
    out_ += R"(,"cat":"asynchronous","id":)";
    AppendInteger(out_, span.id);
    out_ += '}';
  }

  void Begin(const char* phase, std::string_view name, int64_t time) {
    std::string escaped;
    AppendJsonString(escaped, name);
    BeginEscaped(phase, escaped, time);
  }
  void BeginEscaped(const char* phase, const std::string& name, int64_t time) {
    if (out_.size() > kBlock) {
      file_.Write(out_);
      out_.clear();
    }
    out_ += first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
    first_ = false;
    out_ += phase;
    out_ += R"(","name":)";
    out_ += name;
    out_ += R"(,"ts":)";
    AppendMicroseconds(out_, time);
    out_ += R"(,"pid":)";
    AppendInteger(out_, pid_);
  }
  void Duration(int64_t ns) {
    out_ += R"(,"dur":)";
    AppendMicroseconds(out_, ns);
  }
  void Thread(int thread) {
    out_ += R"(,"tid":)";
    AppendInteger(out_, profile_.threads[Index(thread)].id);
  }
  void Category(const ProfileSpan& span) {
    out_ += R"(,"cat":")";
    out_ += DomainOf(span);
    out_ += '"';
  }
  // Returns the displayed name, escaped and in quotes. Cached, since spans share few names.
  const std::string& NameOf(const ProfileSpan& span) {
    std::string& name = names_.Of(span);
    if (name.empty()) AppendJsonString(name, DisplayName(span));
    return name;
  }

  static constexpr size_t kBlock = 1 << 20;

  const Profile& profile_;
  OutputFile& file_;
  const int64_t pid_;
  std::string out_;
  bool first_ = true;
  PerName<std::string> names_;
};

}  // namespace detail

OPKIT_INLINE void SaveChromeTrace(const Profile& profile, const std::string& path) {
  detail::OutputFile file(path);
  detail::ChromeTrace(profile, file).Write();
  file.Commit();
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_CHROME_TRACE_IPP_
