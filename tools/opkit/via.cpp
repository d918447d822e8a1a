// opkit check --via: one Python process for each host, and the table of their results.
#include "via.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "file.hpp"
#include "library.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/base/suggest.hpp"
#include "terminal.hpp"
#include "via_driver.hpp"  // the text of via_driver.py, which CMake writes

namespace cli {
namespace {

using namespace opkit;
using nlohmann::json;

const std::vector<std::string> kHosts = {"numpy", "jax", "ort", "torch"};

// A folder of files for the child processes, removed at the end of the scope.
class Folder {
 public:
  Folder() {
    std::error_code error;
    path_ = (std::filesystem::temp_directory_path(error) / "opkit_via.XXXXXX").string();
    if (error || !mkdtemp(path_.data()))
      throw Failure(ExitCode::kBadFile, "cannot make a folder '" + path_ + "'");
  }
  Folder(Folder&&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string Quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The results of a host.
struct HostResult {
  std::string name, version;  // no version: not installed
  bool is_missing = false;
  std::string missing;  // the text of Python's ImportError
  int equal = 0;
  std::vector<std::pair<std::string, std::string>> wrong;    // the case or the host, and what
  std::map<std::string, std::set<std::string>> not_carried;  // operators with a case, by reason
  int num_not_carried = 0;
  double us = -1, own_us = 0, cpp_us = 0;  // of a call
  std::string timed;                       // the case
  int cases() const { return equal + static_cast<int>(wrong.size()) + num_not_carried; }
};

// Runs all cases in one host.
class HostRun {
 public:
  HostRun(const ViaOptions& options, const Folder& folder, const std::vector<std::string>& names,
          const std::vector<std::string>& ops)
      : options_(options), folder_(folder), names_(names), ops_(ops) {
    const char* const python = std::getenv("PYTHON");
    python_ = python && *python ? python : "python3";
  }

  HostResult Run(const std::string& host) {
    HostResult result;
    result.name = host;
    // After a crash or a hang the next process begins behind its case.
    for (int first = 0; first >= 0;) first = RunFrom(first, result);
    return result;
  }

 private:
  // Runs a process, and returns the first case of the next one; -1 if no further one is needed.
  int RunFrom(int first, HostResult& result) {
    const std::string messages = folder_ / (result.name + ".stderr");
    const std::string command =
        StrCat("exec ", Quoted(python_), " ", Quoted(folder_ / "via_driver.py"), " ", result.name,
               " ", Quoted(folder_.path()), " ", Quoted(options_.library), " ", first, " 2> ",
               Quoted(messages), " < /dev/null");
    const ChildOutcome outcome = RunInChild(options_.seconds, [&](const ChildReporter& voice) {
      std::FILE* const lines = popen(command.c_str(), "r");
      if (!lines) throw Failure(ExitCode::kRunFailed, "cannot start a process for " + python_);
      std::string all;
      for (int c; (c = std::getc(lines)) != EOF;) {
        all += static_cast<char>(c);
        if (c == '\n') voice.Answer(all);  // a line begins the time of the next step
      }
      const int status = pclose(lines);
      constexpr int kCannotRun = 126, kNotFound = 127;  // of the shell
      if (all.empty() && (WEXITSTATUS(status) == kCannotRun || WEXITSTATUS(status) == kNotFound))
        throw Failure(ExitCode::kRunFailed, "cannot run '" + python_ + "', which imports the hosts",
                      "$PYTHON names another Python");
      std::string end;
      if (WIFSIGNALED(status))
        end = StrCat("crashes: signal ", WTERMSIG(status));
      else if (WEXITSTATUS(status) != 0)
        end = StrCat("ends with exit status ", WEXITSTATUS(status));
      voice.Answer(all + json{{"exit", end}}.dump() + "\n");
      return ChildEnd::kAtOnce;
    });
    int begun = -1;
    bool ended = false;
    std::string end = outcome.failure.empty() ? "" : outcome.failure + ": " + outcome.how;
    for (size_t at = 0; at < outcome.answer.size();) {
      const size_t next = std::min(outcome.answer.find('\n', at), outcome.answer.size());
      const json line = json::parse(outcome.answer.substr(at, next - at), nullptr, false);
      at = next + 1;
      if (!line.is_object()) continue;
      if (line.contains("exit") && end.empty()) end = line.value("exit", "");
      Read(line, result, begun, ended);
    }
    if (ended || result.is_missing) return -1;
    if (end.empty()) end = "ends too early";
    if (const std::string last = LastLine(messages); !last.empty()) end += ", " + last;
    const bool in_case = begun >= first && begun < static_cast<int>(names_.size());
    result.wrong.emplace_back(in_case ? names_[static_cast<size_t>(begun)] : result.name,
                              (result.version.empty() ? "Python " : "the host ") + end);
    return in_case ? begun + 1 : -1;
  }

  // Reads one line of the program; `begun` is the case that has no result yet.
  void Read(const json& line, HostResult& result, int& begun, bool& ended) const {
    if (line.contains("missing"))
      result.is_missing = true, result.missing = line.value("missing", "");
    if (line.contains("version")) result.version = line.value("version", "");
    if (line.contains("end")) ended = true;
    if (line.contains("begin") && line["begin"].is_number_integer())
      begun = line.contains("timing") ? -1 : line["begin"].get<int>();
    if (line.contains("timed")) {
      result.timed = line.value("timed", "");
      result.us = line.value("us", -1.), result.own_us = line.value("own_us", 0.);
      result.cpp_us = line.value("cpp_us", 0.);
    }
    if (!line.contains("case") || !line["case"].is_number_integer()) return;
    const auto i = line["case"].get<size_t>();
    if (i >= names_.size()) return;
    begun = -1;
    const std::string wrong = line.value("wrong", ""), reason = line.value("not_carried", "");
    if (!reason.empty())
      ++result.num_not_carried, result.not_carried[reason].insert(ops_[i]);
    else if (!wrong.empty())
      result.wrong.emplace_back(names_[i], wrong);
    else
      ++result.equal;
  }

  static std::string LastLine(const std::string& path) {
    std::ifstream file(path);
    std::string last;
    for (std::string line; std::getline(file, line);)
      if (line.find_first_not_of(" \t\r") != line.npos) last = line;
    return last.substr(0, 300);
  }

  const ViaOptions& options_;
  const Folder& folder_;
  const std::vector<std::string>&names_, &ops_;  // for each case
  std::string python_;
};

std::vector<std::string> HostsOf(const ViaOptions& options, bool* named) {
  std::vector<std::string> hosts;
  *named = true;
  for (const std::string& host : options.hosts) {
    if (host == "all") {
      *named = false;
      return kHosts;
    }
    if (std::ranges::count(kHosts, host) == 0)
      throw Failure(ExitCode::kUsage, "expected numpy, jax, ort, torch or all for --via, found '" +
                                          host + "'" + SuggestName(host, kHosts));
    if (std::ranges::count(hosts, host) == 0) hosts.push_back(host);
  }
  return hosts;
}

std::string TextOf(const std::vector<HostResult>& results) {
  constexpr size_t kMost = 5;  // texts of one host
  Table table("llrrrrrrr");
  table.Add(
      {"host", "version", "cases", "equal", "wrong", "not carried", "us", "C++ us", "own us"});
  std::string out, timed;
  for (const HostResult& host : results) {
    if (host.is_missing) {
      table.Add({host.name, "not installed", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const bool has_time = host.us >= 0;
    const auto time = [&](double us) { return has_time ? Fixed(us, 2) : std::string("-"); };
    table.Add({host.name, Printable(host.version), StrCat(host.cases()), StrCat(host.equal),
               StrCat(host.wrong.size()), StrCat(host.num_not_carried), time(host.us),
               time(host.cpp_us), time(host.own_us)});
    if (has_time) timed += StrCat(timed.empty() ? "" : ", ", host.name, " ", Printable(host.timed));
  }
  out += table.Format(true, stdout);
  if (!timed.empty())
    out +=
        "us: the median time of one call, in the host, in C++, and of the host's own negation "
        "of as many\nelements: " +
        timed + "\n";
  for (const HostResult& host : results) {
    for (size_t i = 0; i < host.wrong.size() && i < kMost; ++i)
      out += StrCat(Red("wrong:", stdout), " ", host.name, ": ", Printable(host.wrong[i].first),
                    ": ", Printable(host.wrong[i].second), "\n");
    if (host.wrong.size() > kMost)
      out +=
          StrCat(Red("wrong:", stdout), " ", host.name, ": ", host.wrong.size() - kMost, " more\n");
    for (const auto& [reason, ops] : host.not_carried) {
      std::string names;
      for (const std::string& op : ops) names += (names.empty() ? "" : ", ") + Printable(op);
      out += StrCat("not carried: ", host.name, ": ", names, ": ", Printable(reason), "\n");
    }
    if (host.is_missing)
      out += StrCat("not installed: ", host.name, ": ", Printable(host.missing), "\n");
  }
  return out;
}

}  // namespace

void CheckVia(const ViaOptions& given) {
  ViaOptions options = given;
  bool named = false;
  const std::vector<std::string> hosts = HostsOf(options, &named);
  std::error_code ignored;
  options.library = std::filesystem::absolute(options.library, ignored).string();

  const ChildOutcome loaded = RunInChild(options.seconds, [&](const ChildReporter& voice) {
    const Library library = LoadLibrary(options.library);
    json about{{"head", HeadOf(library)}, {"ops", library.operators()}};
    voice.Answer(about.dump(-1, ' ', false, json::error_handler_t::replace));
    return ChildEnd::kAtOnce;
  });
  if (loaded.answer.empty()) throw FailedWhileLoading(given.library, loaded);
  const json about = json::parse(loaded.answer);
  std::vector<std::string> ops = about["ops"];
  if (ops.empty())
    throw Failure(ExitCode::kRunFailed, "library '" + given.library + "' registers no operator",
                  "register one in it: REGISTER_OP(name).setForward(f)");
  if (!options.op.empty()) {
    if (std::ranges::count(ops, options.op) == 0)
      throw Failure(ExitCode::kUsage, "library '" + given.library + "' has no operator '" +
                                          options.op + "'" + SuggestName(options.op, ops));
    ops = {options.op};
  }

  const Folder folder;
  std::string lines, notes;
  std::vector<std::string> names, op_of_case;
  int wrong = 0;
  for (const std::string& op : ops) {
    const ChildOutcome outcome = RunInChild(options.seconds, [&](const ChildReporter& voice) {
      voice.Step("its loading");
      const Library library = LoadLibrary(options.library);
      const ViaCases cases = MakeViaCases(library, op, options, folder / "data.bin", voice);
      const json answer{
          {"lines", cases.lines}, {"names", cases.names}, {"notes", cases.not_checked}};
      voice.Answer(answer.dump(-1, ' ', false, json::error_handler_t::replace));
      return ChildEnd::kAtOnce;
    });
    if (!outcome.failure.empty()) {
      ++wrong;
      notes += StrCat(Red("wrong:", stdout), " ", Printable(op), ": it ", outcome.failure, ": ",
                      outcome.how, ", during ", Printable(outcome.step), ", in this program\n");
      continue;
    }
    const json cases = json::parse(outcome.answer);
    for (const std::string line : cases["lines"]) lines += line + "\n";
    for (const std::string name : cases["names"]) {
      names.push_back(name);
      op_of_case.push_back(op);
    }
    for (const std::string note : cases["notes"])
      notes += StrCat("not checked: ", Printable(op), ": ", Printable(note), "\n");
  }
  std::ofstream(folder / "data.bin", std::ios::app);  // exists if no case has a tensor
  WriteFile(folder / "cases.json", lines);
  WriteFile(folder / "via_driver.py", kViaDriver);

  std::vector<HostResult> results;
  HostRun run(options, folder, names, op_of_case);
  for (const std::string& host : hosts) results.push_back(run.Run(host));
  WriteFile("-",
            StrCat(Printable(about["head"].get<std::string>()), "\n\n", TextOf(results), notes));
  std::fflush(stdout);

  int ran = 0, installed = 0, failed = 0;
  std::string missing;
  for (const HostResult& host : results) {
    wrong += static_cast<int>(host.wrong.size());
    failed += !host.wrong.empty();
    ran += host.equal + static_cast<int>(host.wrong.size());
    installed += !host.is_missing;
    if (host.is_missing) missing += (missing.empty() ? "" : ", ") + host.name;
  }
  if (wrong > 0)
    throw Failure(ExitCode::kRunFailed,
                  StrCat(Counted(static_cast<size_t>(wrong), "result"), " of library '",
                         given.library, "' ", wrong == 1 ? "is" : "are", " wrong, in ",
                         Counted(static_cast<size_t>(failed), "host")));
  if (!missing.empty() && (named || installed == 0))
    throw Failure(ExitCode::kRunFailed, "not installed: " + missing,
                  "$PYTHON names the Python that imports hosts (default: python3)");
  if (ran == 0)
    throw Failure(ExitCode::kRunFailed, "no case of library '" + given.library + "' ran in a host",
                  "export its operators: OPKIT_EXPORT(name) of opkit/export/all.hpp");
}

}  // namespace cli
