// Any bytes, alone and in place of some of a real shared object's: an Error, or names that are in
// the file.
#include <link.h>  // and elf.h

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "opkit/plugin/load/elf_file.hpp"

namespace {

void Read(const std::string& file) {
  opkit::detail::ElfInfo info;
  try {
    info = opkit::detail::ReadElf(file, "fuzzed.so");
  } catch (const opkit::Error&) {
    return;
  }
  size_t bytes = 0;
  for (const auto* names : {&info.functions, &info.unique, &info.thread_locals})
    for (const std::string& name : *names) {
      bytes += name.size();
      if (file.find(name) == std::string::npos) std::abort();
    }
  if (bytes > 16 * file.size()) std::abort();
}

// A shared object of nothing but headers: a loaded segment, a dynamic one and two symbol tables.
std::string SmallObject() {
  const std::string names("\0f\0_Zg\0tls\0", 11);
  std::string file(sizeof(ElfW(Ehdr)), '\0');
  const auto add = [&](const void* data, size_t size) {
    const size_t at = file.size();
    file.append(static_cast<const char*>(data), size);
    return at;
  };
  ElfW(Dyn) dynamic[2] = {};
  dynamic[0].d_tag = DT_FLAGS_1;
  dynamic[0].d_un.d_val = DF_1_NODELETE;
  ElfW(Sym) symbols[4] = {};
  for (int i = 1; i < 4; ++i) symbols[i].st_shndx = 1;
  symbols[1].st_name = 1;
  symbols[1].st_info = STB_GLOBAL << 4 | STT_FUNC;
  symbols[2].st_name = 3;
  symbols[2].st_info = STB_GNU_UNIQUE << 4 | STT_OBJECT;
  symbols[3].st_name = 7;
  symbols[3].st_info = STB_GLOBAL << 4 | STT_TLS;
  const size_t at_dynamic = add(dynamic, sizeof dynamic), at_symbols = add(symbols, sizeof symbols),
               at_names = add(names.data(), names.size());
  file.resize((file.size() + 7) / 8 * 8);
  ElfW(Phdr) segments[2] = {};
  segments[0].p_type = PT_LOAD;
  segments[1].p_type = PT_DYNAMIC;
  segments[1].p_offset = at_dynamic;
  segments[1].p_filesz = sizeof dynamic;
  const size_t at_segments = add(segments, sizeof segments);
  ElfW(Shdr) sections[3] = {};
  sections[1].sh_type = SHT_DYNSYM;
  sections[1].sh_offset = at_symbols;
  sections[1].sh_size = sizeof symbols;
  sections[1].sh_entsize = sizeof symbols[0];
  sections[1].sh_link = 2;
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = at_names;
  sections[2].sh_size = names.size();
  const size_t at_sections = add(sections, sizeof sections);
  ElfW(Ehdr) header = {};
  for (int i = 0; i < SELFMAG; ++i) header.e_ident[i] = static_cast<unsigned char>(ELFMAG[i]);
  header.e_ident[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  header.e_ident[EI_DATA] = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
#if defined(__x86_64__)
  header.e_machine = EM_X86_64;
#elif defined(__aarch64__)
  header.e_machine = EM_AARCH64;
#endif
  header.e_type = ET_DYN;
  header.e_phoff = at_segments;
  header.e_phentsize = sizeof segments[0];
  header.e_phnum = 2;
  header.e_shoff = at_sections;
  header.e_shentsize = sizeof sections[0];
  header.e_shnum = 3;
  file.replace(0, sizeof header, reinterpret_cast<const char*>(&header), sizeof header);
  return file;
}

}  // namespace

// {place, byte} pairs over the small object, or where the first byte is odd a file as it is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string object = [] {
    std::string file = SmallObject();
    const auto info = opkit::detail::ReadElf(file, "small.so");  // it is a right one
    if (info.functions != std::vector<std::string>{"f"} || !info.no_delete ||
        info.unique != std::vector<std::string>{"_Zg"})
      std::abort();
    return file;
  }();
  if (size == 0) return 0;
  if (data[0] & 1) {
    Read(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
    return 0;
  }
  std::string file = object;
  for (size_t i = 1; i + 2 < size; i += 3)
    file[(data[i] << 8 | data[i + 1]) % file.size()] = static_cast<char>(data[i + 2]);
  Read(file);
  return 0;
}
