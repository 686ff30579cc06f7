"""Train on a file of one's own: look at it, train in the background, take the model away."""

from bba.ui import own_data, own_file, own_jobs, own_training

own_data.introduce()
own_data.check_allowed()
own_jobs.show()
own_training.ask(own_file.ask())
