// Writes the page of a report, with the profile as JSON in it.
#ifndef OPKIT_REPORT_IMPL_REPORT_IPP_
#define OPKIT_REPORT_IMPL_REPORT_IPP_

#include <algorithm>
#include <map>

#include "opkit/base/index.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/profile/json_text.hpp"
#include "opkit/profile/nesting.hpp"
#include "opkit/profile/profile_table.hpp"
#include "opkit/report/impl/report_page.ipp"
#include "opkit/report/impl/report_partition_script.ipp"
#include "opkit/report/impl/report_run_script.ipp"
#include "opkit/report/impl/report_script.ipp"
#include "opkit/report/report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Converts a profile to the JSON that the page reads. Each text is stored once, as are facts of all
// spans: a list of integers (a column) for each fact, with times and ids as differences from the
// entry before. A fact of only some spans is a list of entries, each of which begins with its
// distance from the span of the entry before. All times are ns.
class ReportData {
 public:
  ReportData(const Profile& profile, const ProfileTableOptions& table, const RunReport& run)
      : profile_(profile), table_(table), run_(run) {
    FindBars();
  }

  std::string ToJson() {
    out_ = StrCat("{\"process\":", Quoted(program_invocation_short_name),
                  ",\"duration\":", profile_.duration, ",\"dropped\":", profile_.dropped,
                  ",\"spans\":", profile_.spans.size());
    AppendThreads();
    AppendBars();
    AppendCounters();
    AppendMarkers();
    if (!run_.nodes.empty()) AppendRun();
    if (!run_.partition.empty()) out_ += ",\"partition\":" + Quoted(run_.partition);
    out_ += ",\"table\":" + opkit::ToJson(MakeProfileTable(profile_, table_));
    out_ += ",\"peak\":{\"flops\":";
    AppendNumber(out_, table_.peak.flops);
    out_ += ",\"bytes\":";
    AppendNumber(out_, table_.peak.bytes);
    out_ += '}';
    out_ += ",\"texts\":[" + texts_ + "]}";
    // Escape each `<`: otherwise the browser's HTML parser could find an end of the script in the
    // data.
    std::string safe;
    safe.reserve(out_.size());
    for (const char c : out_) c == '<' ? safe += "\\u003c" : safe += c;
    return safe;
  }

 private:
  // One bar of the timeline: a span, or a time in which a custom operator's own code ran. Sorted by
  // begin within each thread.
  struct Bar {
    const ProfileSpan* span;
    int64_t begin, end;
    int64_t depth;
    bool user_code;
    int64_t owner;  // index of the operator's bar if user_code, else -1
  };

  void FindBars() {
    std::vector<int64_t> open;
    const auto depth = [&] { return static_cast<int64_t>(open.size()); };
    WalkSpans(
        profile_,
        [&](const ProfileSpan& span) {
          const auto bar = static_cast<int64_t>(bars_.size());
          if (!span.adopted) bar_of_.emplace_back(span.id, bar);
          bars_.push_back({&span, span.begin, span.end, depth(), false, -1});
          open.push_back(bar);
        },
        [&](const ProfileSpan& span, int64_t begin, int64_t end) {
          if (HasUserCode(span)) bars_.push_back({&span, begin, end, depth(), true, open.back()});
        },
        [&](const ProfileSpan&, int64_t) { open.pop_back(); });
    std::sort(bar_of_.begin(), bar_of_.end());
  }

  void AppendThreads() {
    Column("thread_ids", profile_.threads, [](const ProfileThread& thread) { return thread.id; });
    Column("thread_names", profile_.threads,
           [&](const ProfileThread& thread) { return TextOf(thread.name); });
  }

  void AppendBars() {
    int64_t begin = 0, id = 0, bar = -1;
    const auto since = [](int64_t& last, int64_t value) {
      return value - std::exchange(last, value);
    };
    Column("thread", bars_, [](const Bar& one) { return one.span->thread; });
    Column("name", bars_, [&](const Bar& one) { return NameOf(one); });
    Column("begin", bars_, [&](const Bar& one) { return since(begin, one.begin); });
    Column("length", bars_, [](const Bar& one) { return one.end - one.begin; });
    Column("depth", bars_, [](const Bar& one) { return one.depth; });
    Column("id", bars_,
           [&](const Bar& one) { return since(id, static_cast<int64_t>(one.span->id)); });
    Column("node", bars_, [&](const Bar& one) { return TextOf(one.span->node); });
    // The distance from the parent's bar to this one; 0 for no parent.
    Column("parent", bars_, [&](const Bar& one) {
      ++bar;
      const int64_t parent = ParentOf(one);
      return parent < 0 ? 0 : bar - parent;
    });
    out_ += ",\"names\":[" + names_ + ']';

    Entries(
        "user_code", [](const Bar& one) { return one.user_code; }, [](const Bar&) {});
    SpanEntries(
        "completed", [](const ProfileSpan& span) { return span.completed >= 0; },
        [&](const ProfileSpan& span) { Append(span.completed - span.begin); });
    SpanEntries(
        "pushed", [](const ProfileSpan& span) { return span.pushed >= 0; },
        [&](const ProfileSpan& span) {
          Append(span.begin - span.pushed);
          Append(span.pusher);
        });
    SpanEntries(
        "device", [](const ProfileSpan& span) { return span.device != Device{}; },
        [&](const ProfileSpan& span) { Append(TextOf(ToString(span.device))); });
    SpanEntries(
        "work", [](const ProfileSpan& span) { return span.work.shapes != 0; },
        [&](const ProfileSpan& span) {
          Append(TextOf(span.work.shapes));
          Append(span.work.flops);
          Append(span.work.bytes);
          Append(TextOf(span.work.backend));
        });
  }

  void AppendCounters() {
    std::map<uint32_t, std::vector<const ProfileCounter*>> counters;
    for (const ProfileCounter& counter : profile_.counters)
      counters[counter.name].push_back(&counter);
    out_ += ",\"counters\":[";
    for (const auto& [name, points] : counters) {
      BeginItem();
      out_ += StrCat("{\"name\":", TextOf(name));
      int64_t time = 0;
      Column("time", points, [&](const ProfileCounter* point) {
        return point->time - std::exchange(time, point->time);
      });
      out_ += ",\"value\":[";
      for (const ProfileCounter* point : points) {
        BeginItem();
        AppendNumber(out_, point->value);
      }
      out_ += "]}";
    }
    out_ += ']';
  }

  void AppendMarkers() {
    Column("marker_time", profile_.markers,
           [](const ProfileMarker& marker) { return marker.time; });
    Column("marker_name", profile_.markers,
           [&](const ProfileMarker& marker) { return TextOf(marker.name); });
    Column("marker_frame", profile_.markers,
           [](const ProfileMarker& marker) { return static_cast<int>(marker.frame); });
  }

  // Appends the run. A node is [name, ready, begin, end, is critical, the nodes that it waits for];
  // a buffer is [name, owner, bytes, begin, end].
  void AppendRun() {
    out_ += StrCat(",\"run\":{\"begin\":", run_.begin, ",\"end\":", run_.end,
                   ",\"arena\":", run_.arena_bytes, ",\"nodes\":[");
    for (const RunReport::Node& node : run_.nodes) {
      BeginItem();
      out_ += StrCat('[', TextOf(node.name), ',', node.ready, ',', node.begin, ',', node.end, ',',
                     node.critical ? 1 : 0, ",[");
      for (const int place : node.after) Append(place);
      out_ += "]]";
    }
    out_ += "],\"buffers\":[";
    for (const RunReport::Buffer& buffer : run_.buffers) {
      BeginItem();
      out_ += StrCat('[', TextOf(buffer.name), ',', TextOf(buffer.owner), ',', buffer.bytes, ',',
                     buffer.begin, ',', buffer.end, ']');
    }
    out_ += "]}";
  }

  void BeginItem() {
    if (out_.back() != '[') out_ += ',';
  }
  template <class Integer>
  void Append(Integer value) {
    BeginItem();
    AppendInteger(out_, value);
  }
  template <class List, class F>
  void Column(const char* name, const List& list, F value) {
    out_ += StrCat(",\"", name, "\":[");
    for (const auto& item : list) Append(value(item));
    out_ += ']';
  }
  // Appends an entry for each bar with has(bar): its distance from the bar of the entry before, and
  // what append(bar) appends.
  template <class Has, class F>
  void Entries(const char* name, Has has, F append) {
    out_ += StrCat(",\"", name, "\":[");
    size_t last = 0;
    for (size_t i = 0; i < bars_.size(); ++i) {
      if (!has(bars_[i])) continue;
      Append(i - std::exchange(last, i));
      append(bars_[i]);
    }
    out_ += ']';
  }
  template <class Has, class F>
  void SpanEntries(const char* name, Has has, F append) {
    Entries(
        name, [&](const Bar& bar) { return !bar.user_code && has(*bar.span); },
        [&](const Bar& bar) { append(*bar.span); });
  }

  // Returns the bar of the parent, -1 for none. The parent of an adopted span is the bar where its
  // invocation began.
  int64_t ParentOf(const Bar& bar) const {
    if (bar.user_code) return bar.owner;
    const int64_t own = bar.span->adopted ? BarOf(bar.span->id) : -1;
    return own >= 0 ? own : BarOf(bar.span->parent);
  }
  // Returns the bar of the invocation's own span, -1 for none.
  int64_t BarOf(uint64_t id) const {
    const auto found = std::lower_bound(bar_of_.begin(), bar_of_.end(), std::pair(id, int64_t{0}));
    return found == bar_of_.end() || found->first != id ? -1 : found->second;
  }
  // Returns the index in names_ of the pair {display name, domain}; both are indices of texts.
  int64_t NameOf(const Bar& bar) {
    int64_t& name = bar.user_code ? user_code_of_[bar.span->custom] : name_of_.Of(*bar.span);
    if (name == 0) {
      if (!names_.empty()) names_ += ',';
      names_ +=
          StrCat('[', TextOf(bar.user_code ? UserCodeName(*bar.span) : DisplayName(*bar.span)), ',',
                 TextOf(DomainOf(*bar.span)), ']');
      name = ++name_count_;
    }
    return name - 1;
  }
  int64_t TextOf(uint32_t interned) {
    int64_t& text = text_of_interned_[interned];
    if (text == 0) text = TextOf(InternedName(interned)) + 1;
    return text - 1;
  }
  // Returns the index of the text in texts_, and adds it if it is new.
  int64_t TextOf(const std::string& text) {
    const auto [at, is_new] = text_of_.try_emplace(text, static_cast<int64_t>(text_of_.size()));
    if (is_new) texts_ += (texts_.empty() ? "" : ",") + Quoted(text);
    return at->second;
  }
  static std::string Quoted(std::string_view text) {
    std::string out;
    AppendJsonString(out, text);
    return out;
  }

  const Profile& profile_;
  const ProfileTableOptions& table_;
  const RunReport& run_;
  std::vector<Bar> bars_;
  std::vector<std::pair<uint64_t, int64_t>> bar_of_;  // bars of own spans, sorted by id
  std::string out_, names_, texts_;
  int64_t name_count_ = 0;
  PerName<int64_t> name_of_;  // index in names_ plus 1; 0 for none yet
  std::map<uint32_t, int64_t> user_code_of_, text_of_interned_;
  std::map<std::string, int64_t> text_of_;
};

OPKIT_INLINE void SaveHtmlReport(const Profile& profile, const std::string& path,
                                 const ProfileTableOptions& table, const RunReport& run) {
  OutputFile file(path);
  file.Write(kReportHead);
  file.Write(kReportStyle);
  file.Write(kReportBody);
  file.Write(ReportData(profile, table, run).ToJson());
  file.Write(kReportScript);
  file.Write(kReportRunScript);
  file.Write(kReportPartitionScript);
  file.Commit();
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_REPORT_IMPL_REPORT_IPP_
