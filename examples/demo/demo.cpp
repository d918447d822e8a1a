// The program of `./dev demo`: runs two real models from their ONNX files on real input. One graph
// has an operator of the demo's own, and one runs kernels of a library that is loaded at run time.
// Draws the graphs and their memory.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>

#include "../../tools/opkit/terminal.hpp"
#include "draw.hpp"
#include "identify.hpp"
#include "own_operators.hpp"
#include "read_text.hpp"
#include "render.hpp"

namespace demo { namespace {

namespace fs = std::filesystem;
using cli::Fixed;

constexpr const char* kUsage =
    "usage: demo [--data FOLDER] [--out FOLDER] [--library FILE.so] [FOLDER [PICTURE]]\n"
    "\n"
    "Says which kind of file each file under FOLDER is (the current one), without .git and\n"
    "build: of the first twenty one by one, of all together. Reads the line of text in\n"
    "PICTURE (one that it makes), and draws what ran.\n"
    "  --data FOLDER  where data/fetch.py put the models ($OPKIT_DATA_DIR, else build/data)\n"
    "  --out FOLDER   where pictures go (build/demo/pictures)\n"
    "  --library FILE.so  operators that run in place of built-in ones (the HardSigmoid of\n"
    "                 examples/library/hard_sigmoid.cc)\n";

#ifndef OPKIT_DEMO_LIBRARY  // where CMake compiles it
#define OPKIT_DEMO_LIBRARY ""
#endif

struct Options {
  std::string data, out = "build/demo/pictures", files = ".", picture;
  std::string library = OPKIT_DEMO_LIBRARY;
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void Heading(const std::string& text) {
  std::printf("\n%s\n\n", cli::Bold(text, stdout).c_str());
  std::fflush(stdout);
}

// Returns the files below `folder`, relative to it and sorted.
std::vector<std::string> FilesUnder(const std::string& folder) {
  std::vector<std::string> files;
  constexpr auto kSkip = fs::directory_options::skip_permission_denied;
  std::error_code ignored;  // leaves out broken links, and files that disappear meanwhile
  for (auto it = fs::recursive_directory_iterator(folder, kSkip); it != fs::end(it);
       it.increment(ignored)) {
    const std::string name = it->path().filename();
    if (name == ".git" || (name == "build" && it.depth() == 0))
      it.disable_recursion_pending();
    else if (it->is_regular_file(ignored))
      files.push_back(it->path().lexically_relative(folder));
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Percent(float confidence) { return Fixed(100 * confidence, 1) + " %"; }

// Returns the number of files of each kind: "C++ source 61, Markdown document 2".
std::string Summary(const std::vector<FileKind>& kinds) {
  std::map<std::string, int> counts;
  for (const FileKind& kind : kinds) ++counts[kind.description];
  std::vector<std::pair<std::string, int>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = order.empty() ? "none" : "";
  for (const auto& [description, count] : order)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + description;
  return text;
}

opkit::Plan IdentifyFiles(const Options& options) {
  FileIdentifier identifier(options.data + "/magika-1.0.3/magika");
  const std::vector<std::string> files = FilesUnder(options.files);
  std::vector<std::string> paths;
  for (const std::string& file : files) paths.push_back(options.files + "/" + file);
  Heading("Which kind is each of " + std::to_string(files.size()) + " files?");

  const Stopwatch watch;
  std::vector<FileKind> kinds;
  {
    cli::Progress progress("identifying", static_cast<int64_t>(files.size()));
    kinds = identifier.Identify(
        paths, [&](size_t done) { progress.Update(static_cast<int64_t>(done), files[done - 1]); });
  }
  const double seconds = watch.seconds();
  constexpr size_t kMostShown = 20;
  const size_t shown = files.size() <= kMostShown + 1 ? files.size() : kMostShown;
  cli::Table table("llr");
  table.Add({"file", "kind", "confidence"});
  for (size_t i = 0; i < shown; ++i)
    table.Add({files[i], kinds[i].description, Percent(kinds[i].confidence)});
  std::fputs(table.Format(true, stdout).c_str(), stdout);
  if (shown < files.size()) std::printf("and %zu more\n", files.size() - shown);
  std::printf("\n%s.\n%zu files in %s s, from their first and last bytes alone.\n",
              Summary(kinds).c_str(), files.size(), Fixed(seconds, 2).c_str());
  return identifier.plan();
}

// Returns the nodes that run a kernel of a loaded library.
std::vector<int> NodesOfLibraries(const opkit::Plan& plan) {
  std::vector<int> nodes;
  for (int node = 0; node < plan.graph().num_nodes(); ++node)
    if (!plan.choice(node).kernel->origin.empty()) nodes.push_back(node);
  return nodes;
}

// Returns the plan, and true if the text read is the text drawn, or if the user gave the picture.
std::pair<opkit::Plan, bool> ReadPictureText(const Options& options) {
  constexpr const char* kText = "Define an operator once, run it 1001 ways.";
  constexpr uint64_t kSeed = 11;
  Heading("What does the picture say?");
  std::string path = options.picture;
  if (path.empty()) {
    path = options.out + "/sample.png";
    WritePicture(RenderSentence(kText, kSeed), path);
  }
  const Picture picture = ReadPicture(path);
  TextReader reader(options.data +
                    "/rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/"
                    "ch_PP-OCRv4_rec_infer.onnx");
  TextLine line = reader.Read(picture);
  const Stopwatch watch;
  line = reader.Read(picture);
  const double seconds = watch.seconds();

  const opkit::Plan& plan = reader.plan();
  std::printf("picture  %s, %d x %d pixels\n", path.c_str(), picture.width, picture.height);
  if (options.picture.empty()) std::printf("written  %s\n", kText);
  std::printf("read     %s\n", cli::Bold(line.text, stdout).c_str());
  std::printf("         with confidence %s, in %s ms\n", Percent(line.confidence).c_str(),
              Fixed(1000 * seconds, 1).c_str());
  for (int node = 0; node < plan.graph().num_nodes(); ++node) {
    const auto& def = plan.graph().node(node);
    if (def.type() != "NormalizeImage") continue;
    const fs::path place = plan.choice(node).kernel->Place();
    std::printf("\nNode %d of %d is an operator of the demo's own, from %s:\n  %s\n", node,
                plan.graph().num_nodes(), place.filename().c_str(), ToString(def).c_str());
  }
  if (const std::vector<int> nodes = NodesOfLibraries(plan); !nodes.empty()) {
    const opkit::Kernel& kernel = *plan.choice(nodes[0]).kernel;
    std::printf("\n%zu of %d run a kernel of %s, loaded at run time, the first is node %d:\n  %s\n",
                nodes.size(), plan.graph().num_nodes(), kernel.origin.c_str(), nodes[0],
                ToString(plan.graph().node(nodes[0])).c_str());
  }
  return {plan, !options.picture.empty() || line.text == kText};
}

void DrawModel(const opkit::Plan& plan, const std::string& name, const std::string& folder) {
  if (!plan.has_shapes()) {  // there were no files, or all were too small for the model
    std::printf("%s: not needed, so there is nothing to draw\n", name.c_str());
    return;
  }
  const auto memory = plan.memory();
  const auto mebibytes = [](int64_t bytes) { return Fixed(double(bytes) / (1 << 20), 2) + " MiB"; };
  std::printf("%s: %d nodes; %d values in %s, at least %s, one by one %s\n", name.c_str(),
              plan.graph().num_nodes(), static_cast<int>(memory.planned_values),
              mebibytes(memory.arena_bytes).c_str(), mebibytes(memory.lower_bound_bytes).c_str(),
              mebibytes(memory.naive_bytes).c_str());
  for (const std::string& path : DrawPlan(plan, folder, name)) std::printf("  %s\n", path.c_str());
}

int Run(const Options& options) {
  fs::create_directories(options.out);
  if (!options.library.empty()) LoadLibrary(options.library);
  const opkit::Plan identifier = IdentifyFiles(options);
  const auto [reader, right] = ReadPictureText(options);
  Heading("What ran, drawn");
  DrawModel(identifier, "identifier", options.out);
  DrawModel(reader, "reader", options.out);
  if (!right) std::fprintf(stderr, "demo: the text was read wrongly\n");
  return right ? 0 : 1;
}

int Main(int argc, char** argv) {
  const char* data = std::getenv("OPKIT_DATA_DIR");
  Options options;
  options.data = data && *data ? data : "build/data";
  std::vector<std::string*> places = {&options.picture, &options.files};
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool option = argument == "--data" || argument == "--out" || argument == "--library";
    if (argument == "--help" || argument == "-h") return std::fputs(kUsage, stdout), 0;
    if (option ? i + 1 == argc : argument[0] == '-' || places.empty())
      return std::fputs(kUsage, stderr), 2;
    if (option) {
      (argument == "--data"  ? options.data
       : argument == "--out" ? options.out
                             : options.library) = argv[++i];
    } else {
      *places.back() = argument;
      places.pop_back();
    }
  }
  return Run(options);
}

}  // namespace
}  // namespace demo

int main(int argc, char** argv) {
  try {
    return demo::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "demo: %s\n", error.what());
    return 1;
  }
}
