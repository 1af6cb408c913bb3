"""Tests of tools/check_layers.py."""
import os
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools"))
import check_layers  # noqa: E402


class CheckLayersTest(unittest.TestCase):

    def broken(self, path, line):
        """How many rules the one-line file `path` breaks."""
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, os.path.dirname(path)))
            with open(os.path.join(root, path), "w", encoding="utf-8") as out:
                out.write(line + "\n")
            return len(list(check_layers.check_tree(root)))

    def test_lets_includes_go_one_way_only(self):
        self.assertEqual(self.broken("planner/rank.cc", '#include "step/op.h"'), 0)
        self.assertEqual(self.broken("step/op.cc", '#include "planner/rank.h"'), 1)
        self.assertEqual(self.broken("worker/run.cc", '#include "gpu/stream.h"'), 0)
        self.assertEqual(self.broken("worker/run.cc", '#include "spec/campaign.h"'), 1)
        self.assertEqual(self.broken("cli/run.cc", '#include "kernels/kernel.h"'), 1)
        self.assertEqual(self.broken("stats/a.cc", '#include "step/op.h"'), 1)

    def test_keeps_each_library_in_its_room(self):
        self.assertEqual(self.broken("db/store.cc", "#include <sqlite3.h>"), 0)
        self.assertEqual(self.broken("coordinator/store.cc", "#include <sqlite3.h>"), 1)
        self.assertEqual(self.broken("spec/yaml.cc", "#include <yaml-cpp/yaml.h>"), 0)
        self.assertEqual(self.broken("cli/yaml.cc", "#include <yaml-cpp/yaml.h>"), 1)
        self.assertEqual(self.broken("cli/main.cc", "#include <grpcpp/grpcpp.h>"), 0)
        self.assertEqual(self.broken("report/main.cc", "#include <grpcpp/grpcpp.h>"), 1)

    def test_shows_proto_to_services_clients_and_codecs_only(self):
        include = '#include "lastflop/v1/worker.pb.h"'
        self.assertEqual(self.broken("worker/worker_client.cc", include), 0)
        self.assertEqual(self.broken("coordinator/worker_service.h", include), 0)
        self.assertEqual(self.broken("worker/codec.cc", include), 0)
        self.assertEqual(self.broken("coordinator/scheduler.cc", include), 1)
        self.assertEqual(self.broken("db/codec.cc", include), 1)

    def test_shows_cuda_to_launchers_and_device_code_only(self):
        include = "#include <cuda_runtime.h>"
        self.assertEqual(self.broken("gpu/stream.h", include), 0)
        self.assertEqual(self.broken("kernels/swiglu/swiglu_launch.h", include), 0)
        self.assertEqual(self.broken("kernels/swiglu/swiglu.cuh", include), 0)
        self.assertEqual(self.broken("kernels/swiglu/swiglu.h", include), 1)
        self.assertEqual(self.broken("worker/executor.cc", include), 1)

    def test_wants_paths_from_the_root(self):
        self.assertEqual(self.broken("step/op.cc", '#include "op.h"'), 1)

    def test_wants_the_own_header_first(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "step"))
            for name, text in {"a.h": "", "b.h": "", "a.cc": '#include "step/a.h"\n',
                               "b.cc": '#include <string>\n\n#include "step/b.h"\n',
                               "c.cc": "#include <string>\n"}.items():
                with open(os.path.join(root, "step", name), "w", encoding="utf-8") as out:
                    out.write(text)
            self.assertEqual([path for path, *_ in check_layers.check_tree(root)], ["step/b.cc"])

    def test_holds_for_this_tree(self):
        self.assertEqual(list(check_layers.check_tree(ROOT)), [])


if __name__ == "__main__":
    unittest.main()
