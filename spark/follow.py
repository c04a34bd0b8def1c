"""What `spark-submit` is given for the live job in zkms_spark, which --py-files brings."""

import sys

from zkms_spark.live.job import main

sys.exit(main())
