#include "profiles.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "opkit/profile/profile_file.hpp"
#include "opkit/profile/profiler.hpp"
#include "opkit/report/report.hpp"

namespace opkit_python {
namespace {

namespace nb = nanobind;
using namespace opkit;

nb::list Rows(const Profile& profile, bool by_node) {
  ProfileTableOptions options;
  options.by_node = by_node;
  nb::list out;
  for (const ProfileTableRow& row : MakeProfileTable(profile, options).rows) {
    nb::dict item;
    item["name"] = row.name;
    if (by_node) item["node"] = row.node;
    item["domain"] = row.domain;
    item["count"] = row.count;
    item["total_ns"] = row.total;
    item["self_ns"] = row.self;
    item["min_ns"] = row.min;
    item["max_ns"] = row.max;
    out.append(item);
  }
  return out;
}

}  // namespace

void BindProfiles(nb::module_& m) {
  nb::class_<Profile>(m, "Recording")
      .def("rows", &Rows, nb::arg("by_node") = false)
      .def("table", [](const Profile& profile) { return ToString(MakeProfileTable(profile)); })
      .def(
          "save",
          [](const Profile& profile, const std::string& path) {
            const nb::gil_scoped_release release;
            return opkit::detail::SaveProfileFile(profile, path);
          },
          nb::arg("path"));
  m.def(
      "start_profile",
      [](bool shapes, bool memory) {
        ProfileOptions options;
        options.shapes = shapes;
        options.memory = memory;
        Profiler::Start(options);
      },
      nb::arg("shapes"), nb::arg("memory"));
  m.def("stop_profile", [] {
    const nb::gil_scoped_release release;
    Profiler::Stop();
    return Profiler::Read();
  });
  // The two calls of opkit.scope; they must come from one thread, in the order of a stack.
  struct Scope {
    explicit Scope(const std::string& name) : scope(name) {}
    ProfileScope scope;
  };
  nb::class_<Scope>(m, "Scope").def(nb::init<const std::string&>(), nb::arg("name"));
}

}  // namespace opkit_python
