// opkit._core: the part of the Python package opkit that is written in C++. python/opkit/ has the
// part that users see.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "custom_operators.hpp"
#include "errors.hpp"
#include "graphs.hpp"
#include "operators.hpp"
#include "opkit/plugin/library.hpp"
#include "opkit/version.hpp"
#include "profiles.hpp"

namespace nb = nanobind;

namespace opkit_python { namespace {

using opkit::Library;

void BindLibraries(nb::module_& m) {
  nb::class_<Library>(m, "Library")
      .def_prop_ro("name", &Library::name)
      .def_prop_ro("path", &Library::path)
      .def_prop_ro("version", &Library::own_version)
      .def_prop_ro("operators", &Library::operators)
      .def_prop_ro("is_loaded", &Library::is_loaded)
      .def("unload",
           [](Library& library) {
             DropReadyOperators();
             const nb::gil_scoped_release release;
             return ToString(library.Unload());
           })
      .def("__repr__", [](const Library& library) {
        if (!library.is_loaded()) return std::string("<opkit.Library, unloaded>");
        return opkit::StrCat("<opkit.Library '", library.name(), "': ", library.operators(), ">");
      });
  m.def(
      "load_library",
      [](const std::string& path, const std::string& backend, bool allow_override) {
        DropReadyOperators();  // they might run another kernel from now on
        const nb::gil_scoped_release release;
        return Library::Load(path, {.backend = backend, .allow_override = allow_override});
      },
      nb::arg("path"), nb::arg("backend") = "", nb::arg("allow_override") = false);
  m.def(
      "build_library",
      [](const std::string& source, std::vector<std::string> flags, const std::string& backend,
         bool allow_override) {
        DropReadyOperators();  // Build unloads an older result of the source
        const nb::gil_scoped_release release;
        return Library::Build(source, {.flags = std::move(flags)},
                              {.backend = backend, .allow_override = allow_override});
      },
      nb::arg("source"), nb::arg("flags"), nb::arg("backend") = "",
      nb::arg("allow_override") = false);
}

}  // namespace
}  // namespace opkit_python

NB_MODULE(_core, m) {
  using namespace opkit_python;
  m.attr("__version__") = OPKIT_VERSION_STRING;
  BindErrors();
  BindArrays(m);
  BindLibraries(m);
  BindOperators(m);
  BindGraphs(m);
  BindProfiles(m);
  BindCustomOperators(m);
}
