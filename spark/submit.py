"""What `spark-submit` is given: the job in zkms_spark, which --py-files brings."""

import sys

from zkms_spark.job import main

sys.exit(main())
