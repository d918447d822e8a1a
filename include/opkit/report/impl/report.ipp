// Writes the page of a report, with the profile as JSON in it.
#ifndef OPKIT_REPORT_IMPL_REPORT_IPP_
#define OPKIT_REPORT_IMPL_REPORT_IPP_

#include <algorithm>
#include <map>

#include "opkit/base/json/json_writer.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/profile/profile_table.hpp"
#include "opkit/profile/trace_visitor.hpp"
#include "opkit/report/impl/page/page.ipp"
#include "opkit/report/report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Converts a profile to the JSON that the page reads. Each text is stored once. A fact of all spans
// is a list of integers (a column), with times and ids as differences from the entry before. A fact
// of only some spans is a list of entries. Each entry begins with the distance from its span to the
// span of the entry before. All times are ns.
class ReportData final : TraceVisitor {
 public:
  ReportData(const Profile& profile, const ProfileTableOptions& table, const RunReport& run)
      : TraceVisitor(profile), table_(table), run_(run) {}

  std::string ToJson() {
    names_json_.BeginArray();
    texts_json_.BeginArray();
    VisitSpans();
    std::sort(bar_of_.begin(), bar_of_.end());
    json_.BeginObject().Member("process", program_invocation_short_name);
    json_.Member("duration", profile_.duration).Member("dropped", profile_.dropped);
    json_.Member("spans", profile_.spans.size());
    AppendThreads();
    AppendBars();
    AppendFacts();
    AppendCounters();
    AppendMarkers();
    if (!run_.nodes.empty()) AppendRun();
    if (!run_.partition.empty()) json_.Member("partition", run_.partition);
    json_.Key("table").Item() += opkit::ToJson(MakeProfileTable(profile_, table_));
    json_.Key("peak").BeginObject().Member("flops", table_.peak.flops);
    json_.Member("bytes", table_.peak.bytes).Key("caches").BeginArray();
    for (const CacheCeiling& cache : table_.peak.caches) {
      json_.BeginObject().Member("name", cache.name);
      json_.Member("bytes", cache.bytes_per_second).EndObject();
    }
    json_.EndArray().EndObject();
    texts_json_.EndArray();
    json_.Key("texts").Item() += texts_;
    json_.EndObject();
    // Escape each `<`: otherwise the browser's HTML parser could find an end of the script in the
    // data.
    std::string safe;
    safe.reserve(out_.size());
    for (const char c : out_) c == '<' ? safe += "\\u003c" : safe += c;
    return safe;
  }

 private:
  // One bar of the timeline: a span, or a period in which a custom operator's own code ran. Sorted
  // by begin within each thread.
  struct Bar {
    const ProfileSpan* span;
    size_t name;  // index of its name in names_
    int64_t begin, end;
    size_t depth;
    int64_t owner;  // index of the operator's bar if its own code ran, else -1
    bool is_user_code() const { return owner >= 0; }
  };
  // The entries of one fact: the distance from the bar of the entry before, and the value.
  struct FactEntries {
    std::string name;
    TraceFact::Kind kind;
    int64_t last = 0;          // the bar of the last entry
    std::string entries = {};  // JSON: numbers and commas
  };
  struct Marker {
    int64_t time, name;
    bool frame;
  };

  void OnSpan(const ProfileSpan& span, const TraceName& name) override {
    const auto bar = static_cast<int64_t>(bars_.size());
    if (!span.adopted) bar_of_.emplace_back(span.id, bar);
    AddName(name);
    bars_.push_back({&span, name.number, span.begin, span.end, open_.size(), -1});
    open_.push_back(bar);
    VisitFacts(span);
  }
  void OnSpanEnd(const ProfileSpan&) override { open_.pop_back(); }
  void OnUserCode(const ProfileSpan& span, const TraceName& name, int64_t begin,
                  int64_t end) override {
    AddName(name);
    bars_.push_back({&span, name.number, begin, end, open_.size(), open_.back()});
  }
  void OnFact(const TraceFact& fact) override {
    auto found = std::find_if(facts_.begin(), facts_.end(),
                              [&](const FactEntries& one) { return one.name == fact.name; });
    if (found == facts_.end()) found = facts_.insert(found, {std::string(fact.name), fact.kind});
    const auto bar = static_cast<int64_t>(bars_.size()) - 1;
    std::string& entries = found->entries;
    if (!entries.empty()) entries += ',';
    AppendInteger(entries, bar - std::exchange(found->last, bar));
    entries += ',';
    if (fact.kind == TraceFact::Kind::kText)
      AppendInteger(entries, TextOf(std::string(fact.text)));
    else if (fact.kind == TraceFact::Kind::kTime)
      AppendInteger(entries, static_cast<int64_t>(fact.number));
    else
      AppendInteger(entries, fact.number);
  }
  void OnCounter(const ProfileCounter& counter, const std::string&) override {
    counters_[counter.name].push_back(&counter);
  }
  void OnMarker(const ProfileMarker& marker, const std::string& name) override {
    markers_.push_back({marker.time, TextOf(name), marker.frame});
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
    Column("name", bars_, [&](const Bar& one) { return one.name; });
    Column("begin", bars_, [&](const Bar& one) { return since(begin, one.begin); });
    Column("length", bars_, [](const Bar& one) { return one.end - one.begin; });
    Column("depth", bars_, [](const Bar& one) { return one.depth; });
    Column("id", bars_,
           [&](const Bar& one) { return since(id, static_cast<int64_t>(one.span->id)); });
    Column("node", bars_, [&](const Bar& one) { return TextOf(Text(one.span->node)); });
    // The distance from the parent's bar to this one; 0 for no parent.
    Column("parent", bars_, [&](const Bar& one) {
      ++bar;
      const int64_t parent = ParentOf(one);
      return parent < 0 ? 0 : bar - parent;
    });
    names_json_.EndArray();
    json_.Key("names").Item() += names_;
    Entries(
        "user_code", [](const Bar& one) { return one.is_user_code(); }, [](const Bar&) {});
    Entries(
        "completed", [](const Bar& one) { return !one.is_user_code() && one.span->completed >= 0; },
        [&](const Bar& one) { json_.Value(one.span->completed - one.span->begin); });
    Entries(
        "pushed", [](const Bar& one) { return !one.is_user_code() && IsTask(*one.span); },
        [&](const Bar& one) { json_.Value(one.span->pusher); });
  }

  void AppendFacts() {
    static constexpr const char* kKinds[] = {"text", "count", "time", "flag"};
    json_.Key("facts").BeginArray();
    for (const FactEntries& fact : facts_) {
      json_.BeginObject().Member("name", TextOf(fact.name));
      json_.Member("kind", kKinds[static_cast<int>(fact.kind)]).Key("bars").Item() +=
          '[' + fact.entries + ']';
      json_.EndObject();
    }
    json_.EndArray();
  }

  void AppendCounters() {
    VisitCounters();
    json_.Key("counters").BeginArray();
    for (const auto& [name, points] : counters_) {
      json_.BeginObject().Member("name", TextOf(Text(name)));
      int64_t time = 0;
      Column("time", points, [&](const ProfileCounter* point) {
        return point->time - std::exchange(time, point->time);
      });
      Column("value", points, [](const ProfileCounter* point) { return point->value; });
      json_.EndObject();
    }
    json_.EndArray();
  }

  void AppendMarkers() {
    VisitMarkers();
    Column("marker_time", markers_, [](const Marker& marker) { return marker.time; });
    Column("marker_name", markers_, [](const Marker& marker) { return marker.name; });
    Column("marker_frame", markers_, [](const Marker& marker) { return int{marker.frame}; });
  }

  // Appends the run. A node is [name, ready, begin, end, is critical, the nodes that it waits for];
  // a buffer is [name, owner, bytes, begin, end], a process [ns, waited], a wait [node, process,
  // peer, ns, late].
  void AppendRun() {
    json_.Key("run").BeginObject().Member("begin", run_.begin).Member("end", run_.end);
    json_.Member("arena", run_.arena_bytes).Key("nodes").BeginArray();
    for (const RunReport::Node& node : run_.nodes) {
      json_.BeginArray().Value(TextOf(node.name)).Value(node.ready).Value(node.begin);
      json_.Value(node.end).Value(int{node.critical}).Value(node.after).EndArray();
    }
    json_.EndArray().Key("buffers").BeginArray();
    for (const RunReport::Buffer& buffer : run_.buffers) {
      json_.BeginArray().Value(TextOf(buffer.name)).Value(TextOf(buffer.owner));
      json_.Value(buffer.bytes).Value(buffer.begin).Value(buffer.end).EndArray();
    }
    json_.EndArray().Key("processes").BeginArray();
    for (const RunReport::Process& process : run_.processes)
      json_.BeginArray().Value(process.ns).Value(process.waited).EndArray();
    json_.EndArray().Key("waits").BeginArray();
    for (const RunReport::Wait& wait : run_.waits) {
      json_.BeginArray().Value(TextOf(wait.node)).Value(wait.process).Value(wait.peer);
      json_.Value(wait.ns).Value(wait.late).EndArray();
    }
    json_.EndArray().EndObject();
  }

  template <class List, class F>
  void Column(const char* name, const List& list, F value) {
    json_.Key(name).BeginArray();
    for (const auto& item : list) json_.Value(value(item));
    json_.EndArray();
  }
  // Appends an entry for each bar with has(bar): its distance from the bar of the entry before, and
  // the text that append(bar) appends.
  template <class Has, class F>
  void Entries(const char* name, Has has, F append) {
    json_.Key(name).BeginArray();
    size_t last = 0;
    for (size_t i = 0; i < bars_.size(); ++i) {
      if (!has(bars_[i])) continue;
      json_.Value(i - std::exchange(last, i));
      append(bars_[i]);
    }
    json_.EndArray();
  }

  // Returns the bar of the parent, -1 for none. The parent of an adopted span (a part of an
  // invocation that began elsewhere) is the bar where that invocation began.
  int64_t ParentOf(const Bar& bar) const {
    if (bar.is_user_code()) return bar.owner;
    const int64_t own = bar.span->adopted ? BarOf(bar.span->id) : -1;
    return own >= 0 ? own : BarOf(bar.span->parent);
  }
  // Returns the bar of the invocation's own span, -1 for none.
  int64_t BarOf(uint64_t id) const {
    const auto found = std::lower_bound(bar_of_.begin(), bar_of_.end(), std::pair(id, int64_t{0}));
    return found == bar_of_.end() || found->first != id ? -1 : found->second;
  }
  // Adds the pair {display name, domain} to names_ at the name's number, if it is new. Both are
  // indices of texts.
  void AddName(const TraceName& name) {
    if (name.number < num_names_) return;
    ++num_names_;
    names_json_.BeginArray().Value(TextOf(name.text)).Value(TextOf(name.domain)).EndArray();
  }
  // Returns the index of the text in texts_, and adds it if it is new.
  int64_t TextOf(const std::string& text) {
    const auto [at, is_new] = text_of_.try_emplace(text, static_cast<int64_t>(text_of_.size()));
    if (is_new) texts_json_.Value(text);
    return at->second;
  }

  const ProfileTableOptions& table_;
  const RunReport& run_;
  std::vector<Bar> bars_;
  std::vector<int64_t> open_;                         // bars of the spans around the current one
  std::vector<std::pair<uint64_t, int64_t>> bar_of_;  // bars of own spans, sorted by id
  std::vector<FactEntries> facts_;
  std::map<uint32_t, std::vector<const ProfileCounter*>> counters_;
  std::vector<Marker> markers_;
  size_t num_names_ = 0;
  std::map<std::string, int64_t> text_of_;
  std::string out_, names_, texts_;
  JsonWriter json_{out_, JsonWriter::kCompact}, names_json_{names_, JsonWriter::kCompact},
      texts_json_{texts_, JsonWriter::kCompact};
};

OPKIT_INLINE void SaveHtmlReport(const Profile& profile, const std::string& path,
                                 const ProfileTableOptions& table, const RunReport& run) {
  OutputFile file(path);
  for (const std::string_view part : kPageBeforeData) file.Write(part);
  file.Write(ReportData(profile, table, run).ToJson());
  for (const std::string_view part : kPageAfterData) file.Write(part);
  file.Commit();
}

}}}  // namespace opkit::detail

#endif  // OPKIT_REPORT_IMPL_REPORT_IPP_
